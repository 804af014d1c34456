// SPDX-License-Identifier: Apache-2.0
import Bespoke
import BespokeBackground
import Foundation

/// The learning that the system gives time for. What came of it is written to a log.
public final class Learning: Sendable {
    /// As in Info.plist.
    public static let identifier = "dev.bespoke.notes.learning"

    private let training: BackgroundTraining
    private let place: Place

    init(
        bundle: URL, state: URL, options: Options, notebook: JSONFile<Notebook>, log: JSONFile<LearningLog>,
        device: @escaping @Sendable () -> DeviceState
    ) {
        let place = Place()
        let settings = BackgroundSettings(identifier: Self.identifier, bundle: bundle, state: state, options: options)
        training = BackgroundTraining(settings, device: device) { progress in
            if progress.phase == .step { place.steps = (Int(progress.step), Int(progress.steps)) }
        } onOutcome: { outcome in
            // What cannot be written is not shown, which is no reason to end the app.
            _ = try? log.change { $0.add(outcome, device: device(), at: Date()) }
            if outcome.isFinal {
                _ = try? notebook.change { $0.hasNews = false }
            }
            place.steps = nil
        }
        self.place = place
    }

    /// Before the launch of the app ends, and once. False: Info.plist does not permit the identifier.
    public func register() -> Bool {
        training.register()
    }

    /// What a task of the system that learns now has done; nil: none runs.
    var status: LearningStatus? {
        guard training.isRunning else { return nil }
        return place.steps.map { .learning(step: $0, steps: $1) } ?? .opening
    }

    func schedule() throws {
        try training.schedule()
    }

    @available(iOS 26, *)
    func learnNow(title: String, subtitle: String) throws {
        try training.learnNow(title: title, subtitle: subtitle)
    }

    /// Takes the request back, and ends a task that runs.
    func cancel() {
        training.cancel()
    }

    func hasEnded() async throws {
        while training.isRunning {
            try await Task.sleep(for: .milliseconds(20))
        }
    }
}

/// Where a task is.
private final class Place: @unchecked Sendable {
    private let lock = NSLock()
    private var now: (done: Int, planned: Int)?

    var steps: (done: Int, planned: Int)? {
        get { lock.withLock { now } }
        set { lock.withLock { now = newValue } }
    }
}
