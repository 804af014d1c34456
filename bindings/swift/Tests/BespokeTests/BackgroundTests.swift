// SPDX-License-Identifier: Apache-2.0
#if canImport(BackgroundTasks) && !os(macOS)
import BackgroundTasks
import Bespoke
import BespokeBackground
import Foundation
import Testing

private let identifier = "com.example.notes.learning"
private var system: System { BGTaskScheduler.shared.system }

/// An app that learns in the background, launched by the system of the stubs, over the real core.
private final class App: @unchecked Sendable {
    let state: URL
    let training: BackgroundTraining
    private let lock = NSLock()
    private var all: [Outcome] = []
    private var said = DeviceState()
    private var steps = 0
    private var most: Int64?

    init(state: URL, training: Training = Training(), sliceSeconds: Double = 60, options: Options = Options()) {
        self.state = state
        let settings = BackgroundSettings(
            identifier: identifier, bundle: Fixture.bundle, state: state, options: options, training: training, sliceSeconds: sliceSeconds)
        nonisolated(unsafe) weak var app: App?
        self.training = BackgroundTraining(settings) {
            app?.now ?? DeviceState()
        } onProgress: { progress in
            app?.told(progress)
        } onOutcome: { outcome in
            app?.ended(outcome)
        }
        app = self
    }

    var outcomes: [Outcome] { lock.withLock { all } }

    var device: DeviceState {
        get { lock.withLock { said } }
        set { lock.withLock { said = newValue } }
    }

    /// What this process may hold, as the system of an iPhone would say it; nil: as `device` says.
    var mostBytes: Int64? {
        get { lock.withLock { most } }
        set { lock.withLock { most = newValue } }
    }

    private var now: DeviceState {
        var now = device
        now.availableBytes = mostBytes.map { $0 - anonymousBytes() } ?? now.availableBytes
        return now
    }

    /// How many steps have ended in this process.
    var toldSteps: Int { lock.withLock { steps } }

    private func told(_ progress: CallProgress) {
        lock.withLock { steps += progress.phase == .step ? 1 : 0 }
    }

    private func ended(_ outcome: Outcome) {
        lock.withLock { all.append(outcome) }
    }

    /// The steps that are committed, looked at as another process would.
    func committedStep() async throws -> Int64? {
        let model = try await PersonalModel.open(bundle: Fixture.bundle, state: state)
        let step = try await model.currentRun()?.step
        try await model.close()
        return step
    }

    /// Returns once a run has begun.
    func waitUntilItTrains() async throws {
        let model = try await PersonalModel.open(bundle: Fixture.bundle, state: state)
        while try await model.currentRun() == nil {
            try await Task.sleep(for: .milliseconds(1))
        }
        try await Task.sleep(for: .milliseconds(Int.random(in: 0...300)))
        try await model.close()
    }
}

extension Outcome {
    fileprivate var report: TrainReport? {
        switch self {
        case .judged(let report): report
        case .goesOn(let report): report
        case .waits, .failed: nil
        }
    }

    fileprivate var waitsFor: BespokeError? {
        if case .waits(let error) = self { error } else { nil }
    }

    fileprivate var failure: (any Error)? {
        if case .failed(let error) = self { error } else { nil }
    }
}

@Suite(.serialized) struct BackgroundTests {
    /// An app that was launched, with the notes in its state.
    private func withApp(
        notes: Bool = true, training: Training = Training(), sliceSeconds: Double = 60, _ test: (App) async throws -> Void
    ) async throws {
        try await withFolder { folder in
            let state = folder.appending(path: "state")
            let model = try await PersonalModel.open(bundle: Fixture.bundle, state: state)
            if notes {
                try await addNotes(to: model)
            }
            try await model.close()
            let app = App(state: state, training: training, sliceSeconds: sliceSeconds)
            start(app)
            try await test(app)
        }
    }

    private func start(_ app: App) {
        system.startProcess(permitted: [identifier, "\(identifier).now.*"])
        system.isCharging = true
        system.isInForeground = false
        #expect(app.training.register())
        system.launchEnds()
    }

    @Test func aNightOnTheChargerIsARunAsInPython() async throws {
        try await withApp(sliceSeconds: 2) { app in
            try app.training.schedule()
            #expect((system.pendingRequest(identifier) as? BGProcessingTaskRequest)?.requiresExternalPower == true)
            #expect(system.launch(identifier) == .launched)
            #expect(await system.hasEnded(identifier, seconds: 60) == true)
            let report = try #require(app.outcomes.first?.report)
            #expect(report.accepted == Fixture.python.accepted)
            #expect(report.losses == Array(Fixture.python.losses.suffix(report.losses.count)))
            #expect(report.losses.count < Fixture.python.losses.count)  // the slices before the last
            #expect(system.pendingIdentifiers.isEmpty)
            #expect(try await app.committedStep() == nil)
        }
    }

    @Test func aTaskWhoseTimeEndsIsCompletedAtOnceAndGoesOnTheNextNight() async throws {
        try await withApp { app in
            try app.training.schedule()
            var nights = 0
            var losses: [Double?] = []
            while app.outcomes.last?.report?.accepted == nil {
                #expect(system.launch(identifier) == .launched)
                #expect(nights > 0 || system.runningTask(identifier) != nil)
                if nights < 3 {
                    try await app.waitUntilItTrains()
                    #expect(system.pendingIdentifiers == [identifier])  // a kill would leave it
                    #expect(await system.expire(identifier))
                } else {
                    #expect(await system.hasEnded(identifier, seconds: 60) == true)
                }
                nights += 1
                try #require(app.outcomes.count == nights && nights < 10)
                losses += app.outcomes.last?.report?.losses ?? []
                if app.outcomes.last?.report?.accepted == nil {
                    #expect(try await app.committedStep() == Int64(losses.count))
                }
            }
            #expect(losses == Fixture.python.losses)
        }
    }

    @Test func nothingIsLaunchedWithoutPowerOrAfterAForceQuit() async throws {
        try await withApp { app in
            try app.training.schedule()
            system.isCharging = false
            #expect(system.launch(identifier) == .notCharging)
            system.isCharging = true
            system.forceQuit()
            #expect(system.launch(identifier) == .forceQuit)
            system.userOpensTheApp()
            #expect(system.launch(identifier) == .launched)
            #expect(await system.hasEnded(identifier, seconds: 60) == true)
        }
    }

    @Test func aPhoneThatGetsWarmStopsInACommittedState() async throws {
        try await withApp { app in
            try app.training.schedule()
            #expect(system.launch(identifier) == .launched)
            try await app.waitUntilItTrains()
            app.device = DeviceState(warmth: .critical)
            #expect(await system.hasEnded(identifier, seconds: 10) == false)
            let done = app.outcomes.last?.report?.losses.count ?? 0
            #expect(try await app.committedStep() == Int64(done))
            #expect(system.launch(identifier) == .launched)  // still warm
            #expect(await system.hasEnded(identifier, seconds: 10) == false)
            #expect(app.outcomes.last?.report == nil)
            app.device = DeviceState(warmth: .fair)
            #expect(system.launch(identifier) == .launched)
            #expect(await system.hasEnded(identifier, seconds: 60) == true)
            #expect(app.outcomes.last?.report?.losses == Array(Fixture.python.losses.dropFirst(done)))
        }
    }

    @Test func whatIsNotThereToLearnFromEndsTheRequests() async throws {
        try await withApp(notes: false) { app in
            try app.training.schedule()
            #expect(system.launch(identifier) == .launched)
            #expect(await system.hasEnded(identifier, seconds: 10) == false)
            let error = try #require(app.outcomes.last?.failure, "\(app.outcomes)")
            #expect((error as? BespokeError)?.kind == .dataError)
            #expect(system.pendingIdentifiers.isEmpty)
        }
    }

    @Test func whatSomebodyElseTrainsIsLeftAlone() async throws {
        try await withApp { app in
            let other = try await PersonalModel.open(bundle: Fixture.bundle, state: app.state)
            try other.setPace(0.02)
            let told = Told()
            let training = Task { try await other.train { told($0) } }
            try await told.waitFor(.step)
            try app.training.schedule()
            #expect(system.launch(identifier) == .launched)
            #expect(await system.hasEnded(identifier, seconds: 60) == false)
            let error = try #require(app.outcomes.last?.waitsFor, "\(app.outcomes)")
            #expect(error.kind == .stateLocked)
            #expect(system.pendingIdentifiers == [identifier])
            training.cancel()
            _ = try await training.value
            try await other.close()
        }
    }

    @Test func tooLittleMemoryWaits() async throws {
        try await withApp { app in
            app.device = DeviceState(availableBytes: 51_000_000)  // 1 MB without what is left alone
            try app.training.schedule()
            #expect(system.launch(identifier) == .launched)
            #expect(await system.hasEnded(identifier, seconds: 60) == false)
            let error = try #require(app.outcomes.last?.waitsFor, "\(app.outcomes)")
            #expect(error.kind == .budgetExceeded)
        }
    }

    /// What training has taken itself is no longer available, and still its own.
    @Test func whatTrainingHasTakenDoesNotCountAgainstIt() async throws {
        try await withApp { app in
            let (room, reserve): (Int64, Int64) = (20_000_000, 50_000_000)
            app.mostBytes = anonymousBytes() + room + reserve
            try app.training.schedule()
            #expect(system.launch(identifier) == .launched)
            #expect(await system.hasEnded(identifier, seconds: 60) == true)
        }
    }

    @Test func aWarningOfLittleMemoryBeginsANewSliceAndLosesNoStep() async throws {
        try await withApp { app in
            try app.training.schedule()
            #expect(system.launch(identifier) == .launched)
            try await app.waitUntilItTrains()
            system.warnOfLittleMemory()
            #expect(await system.hasEnded(identifier, seconds: 60) == true)
            let last = try #require(app.outcomes.last?.report?.losses)
            #expect(last.count < Fixture.python.losses.count && last == Array(Fixture.python.losses.suffix(last.count)))
        }
    }

    @Test func aModelThatIsOpenGivesItsMemoryBackAtAWarning() async throws {
        try await withModel { model, _ in
            let trims = Task { await model.trimOnMemoryWarnings() }
            _ = try await model.generate(.text("Once"), Generation(maxTokens: 3)).text()
            let before = anonymousBytes()
            let deadline = Date().addingTimeInterval(10)
            while anonymousBytes() > before - 500_000, Date() < deadline {
                system.warnOfLittleMemory()  // the task may not have begun
                try await Task.sleep(for: .milliseconds(5))
            }
            #expect(anonymousBytes() <= before - 500_000)
            trims.cancel()
            await trims.value
        }
    }

    @Test func aRequestThatIsMadeWhileItLearnsStays() async throws {
        try await withApp { app in
            try app.training.schedule()
            #expect(system.launch(identifier) == .launched)
            try await app.waitUntilItTrains()
            try app.training.schedule()  // a new note
            #expect(await system.hasEnded(identifier, seconds: 60) == true)
            #expect(system.pendingIdentifiers == [identifier])
        }
    }

    @Test func theUserLearnsNowAndSeesHowFarItIs() async throws {
        try await withApp { app in
            #expect(throws: BGTaskScheduler.Error.self) { try app.training.learnNow(title: "Learning", subtitle: "your notes") }
            system.userOpensTheApp()
            try app.training.learnNow(title: "Learning", subtitle: "your notes")
            let now = try #require(system.runningIdentifiers.first)
            let task = try #require(system.runningTask(now) as? BGContinuedProcessingTask)
            #expect(await system.hasEnded(now, seconds: 60) == true)
            #expect(task.progress.completedUnitCount == Int64(Fixture.python.losses.count))
            #expect(task.progress.fractionCompleted == 1)
            #expect(app.outcomes.last?.report?.losses == Fixture.python.losses)
            #expect(system.pendingIdentifiers.isEmpty)
        }
    }

    @Test func theUserStopsWhatLearnsNowAndTheNightGoesOn() async throws {
        try await withApp { app in
            system.userOpensTheApp()
            try app.training.learnNow(title: "Learning", subtitle: "your notes")
            let now = try #require(system.runningIdentifiers.first)
            try await app.waitUntilItTrains()
            #expect(await system.expire(now))
            let done = app.outcomes.last?.report?.losses.count ?? 0
            #expect(try await app.committedStep() == Int64(done))
            #expect(system.launch(identifier) == .launched)
            #expect(await system.hasEnded(identifier, seconds: 60) == true)
            #expect(app.outcomes.last?.report?.losses == Array(Fixture.python.losses.dropFirst(done)))
        }
    }

    @Test func theAppEndsWhatRunsAndTakesItsRequestBack() async throws {
        try await withApp { app in
            try app.training.schedule()
            #expect(system.launch(identifier) == .launched)
            while app.toldSteps == 0 {
                try await Task.sleep(for: .milliseconds(1))
            }
            #expect(app.training.isRunning)
            app.training.cancel()
            #expect(await system.hasEnded(identifier, seconds: 10) == false)
            #expect(!app.training.isRunning && system.pendingIdentifiers.isEmpty)
            let done = app.outcomes.last?.report?.losses.count ?? 0
            #expect(try await app.committedStep() == Int64(done))
            try app.training.schedule()
            #expect(system.launch(identifier) == .launched)
            #expect(await system.hasEnded(identifier, seconds: 60) == true)
            #expect(app.outcomes.last?.report?.losses == Array(Fixture.python.losses.dropFirst(done)))
        }
    }

    @Test func whatIsCancelledBeforeItIsLaunchedDoesNotRun() async throws {
        try await withApp { app in
            try app.training.schedule()
            app.training.cancel()
            #expect(system.launch(identifier) == .noRequest)
        }
    }

    @Test func anIdentifierThatInfoPlistDoesNotNameIsRefused() async throws {
        try await withFolder { folder in
            let app = App(state: folder.appending(path: "state"))
            system.startProcess(permitted: [])
            #expect(!app.training.register())
            #expect(throws: BGTaskScheduler.Error.self) { try app.training.schedule() }
        }
    }
}
#endif
