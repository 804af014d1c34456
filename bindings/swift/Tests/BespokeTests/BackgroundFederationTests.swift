// SPDX-License-Identifier: Apache-2.0
#if canImport(BackgroundTasks) && !os(macOS)
import BackgroundTasks
import Bespoke
import BespokeBackground
import Foundation
import Testing

@testable import BespokeFederation

private let identifier = "com.example.notes.together"
private var system: System { BGTaskScheduler.shared.system }

/// Servers that tests/swift/test_federation.py has started. A round of one ends when one device has answered, so each test takes one.
private struct Edges: Decodable {
    struct Edge: Decodable {
        let url, token: String
    }

    let bundle: String
    let edges: [Edge]

    static let place = ProcessInfo.processInfo.environment["BESPOKE_EDGES"]
    static let running: Edges = try! JSONDecoder().decode(Edges.self, from: Data(contentsOf: URL(fileURLWithPath: place!)))
    private static let taken = Locked(0)

    static func next() -> Edge {
        taken.withLock { taken in
            defer { taken += 1 }
            return running.edges[taken]
        }
    }
}

/// An app that takes part in the background, launched by the system of the stubs, over the real core and a real server.
private final class App: @unchecked Sendable {
    let state: URL
    let client: FederationClient
    let federation: BackgroundFederation
    private let all = Locked([FederationOutcome]())
    private let said = Locked(DeviceState())

    init(
        in folder: URL, server: String? = nil, secondsApart: Double = 86_400, token: String? = nil
    ) throws {
        let edge = server == nil ? Edges.next() : nil
        let token = token ?? edge?.token ?? ""
        state = folder.appending(path: "alice")
        let key = DeviceKey(file: folder.appending(path: "alice.device"), keys: SoftwareKeys())
        client = try FederationClient(server: URL(string: server ?? edge!.url)!, device: key)
        let settings = FederationSettings(
            identifier: identifier, bundle: URL(fileURLWithPath: Edges.running.bundle), state: state, client: client, token: { token },
            secondsApart: secondsApart)
        let (all, said) = (all, said)
        federation = BackgroundFederation(settings) {
            said.withLock { $0 }
        } onOutcome: { outcome in
            all.withLock { $0.append(outcome) }
        }
        system.startProcess(permitted: [identifier])
        (system.isCharging, system.isInForeground, system.now) = (true, false, Date())
        #expect(federation.register())
        system.launchEnds()
    }

    var last: FederationOutcome? { all.withLock { $0.last } }

    var device: DeviceState {
        get { said.withLock { $0 } }
        set { said.withLock { $0 = newValue } }
    }

    var request: BGProcessingTaskRequest? { system.pendingRequest(identifier) as? BGProcessingTaskRequest }

    /// What an open model says or does, as the app in the foreground would.
    @discardableResult
    func open<Result>(_ work: (PersonalModel) async throws -> Result) async throws -> Result {
        let model = try await PersonalModel.open(bundle: URL(fileURLWithPath: Edges.running.bundle), state: state)
        let result = try await work(model)
        try await model.close()
        return result
    }

    func join() async throws {
        try await open { model in
            for last in 5...6 {
                try await model.examples.add(.tokens([3, 4, Int64(last)], mask: [0, 1, 1]), id: "\(last)", mustKnow: true)
            }
            try await model.federation.join()
        }
    }

    /// Whether the system's task was a success.
    func runs() async -> Bool? {
        #expect(system.launch(identifier) == .launched)
        return await system.hasEnded(identifier, seconds: 60)
    }
}

extension FederationOutcome {
    fileprivate var measured: [Int64]? {
        if case .learned(let done) = self { done.measured } else { nil }
    }

    fileprivate var isNotJoined: Bool {
        if case .notJoined = self { true } else { false }
    }

    /// What it waits for; nil: it waits for nothing, or is no wait.
    fileprivate var waitsFor: (any Error)? {
        if case .waits(let error) = self { error } else { nil }
    }

    fileprivate var waits: Bool {
        if case .waits = self { true } else { false }
    }

    fileprivate var failure: (any Error)? {
        if case .failed(let error) = self { error } else { nil }
    }
}

@Suite(.serialized, .enabled(if: Edges.place != nil, "run by tests/swift/test_federation.py")) struct BackgroundFederationTests {
    @Test func beforeTheUserJoinsNothingIsSent() async throws {
        try await withFolder { folder in
            let app = try App(in: folder)
            try app.federation.schedule()
            #expect(await app.runs() == false)
            #expect(app.last?.isNotJoined == true)
            #expect(!app.client.device.exists)
            #expect(system.pendingIdentifiers.isEmpty)
        }
    }

    @Test func aNightOnTheChargerIsOneRoundAndTheNextOneIsADayLater() async throws {
        try await withFolder { folder in
            let app = try App(in: folder)
            try await app.join()
            try app.federation.schedule()
            #expect(app.request?.requiresNetworkConnectivity == true && app.request?.requiresExternalPower == true)
            #expect(app.request?.earliestBeginDate == nil)
            #expect(await app.runs() == true)
            #expect(app.last?.measured?.count == 1, "\(app.last as Any)")
            let next = try #require(app.request?.earliestBeginDate)
            #expect(abs(next.timeIntervalSinceNow - 86_400) < 60)
            #expect(system.launch(identifier) == .tooEarly)
            try app.federation.schedule()  // the app is opened again
            #expect(system.launch(identifier) == .tooEarly)
            system.now = next.addingTimeInterval(1)  // a system that starts it all the same
            #expect(await app.runs() == false)
            #expect(app.last?.waits == true && app.last?.waitsFor == nil)
            let status = try await app.open { try await $0.federation.status() }
            #expect((status.roundsSent, status.pending) == (1, 0))
        }
    }

    @Test func anAppMaySayHowManyRoundsThereAre() async throws {
        try await withFolder { folder in
            let app = try App(in: folder, secondsApart: 0)
            try await app.join()
            try app.federation.schedule()
            for night in 1...2 {
                #expect(await app.runs() == true)
                #expect(app.last?.measured?.count == 1)
                #expect(try await app.open { try await $0.federation.status().roundsSent } == Int64(night))
            }
        }
    }

    @Test func aWarmPhoneAndAServerThatIsGoneWait() async throws {
        try await withFolder { folder in
            let app = try App(in: folder, server: "http://127.0.0.1:1")
            try await app.join()
            app.device = DeviceState(warmth: .critical)
            try app.federation.schedule()
            #expect(await app.runs() == false)
            #expect(app.last?.waits == true && app.last?.waitsFor == nil)
            app.device = DeviceState()
            #expect(await app.runs() == false)
            #expect((app.last?.waitsFor as? FederationError)?.kind == .unreachable, "\(app.last as Any)")
            #expect(system.pendingIdentifiers == [identifier])
        }
    }

    @Test func aTokenThatLetsNobodyInEndsTheRequests() async throws {
        try await withFolder { folder in
            let app = try App(in: folder, token: String(repeating: "x", count: 43))
            try await app.join()
            try app.federation.schedule()
            #expect(await app.runs() == false)
            #expect((app.last?.failure as? FederationError)?.kind == .refused(status: 403), "\(app.last as Any)")
            #expect(system.pendingIdentifiers.isEmpty)
        }
    }

    @Test func aTimeThatEndsLeavesNothingThatIsSentTwice() async throws {
        try await withFolder { folder in
            let app = try App(in: folder, secondsApart: 0)
            try await app.join()
            try app.federation.schedule()
            for milliseconds in [0, 20, 60, 150] {
                #expect(system.launch(identifier) == .launched)
                try await Task.sleep(for: .milliseconds(milliseconds))
                #expect(await system.expire(identifier))
                #expect(system.pendingIdentifiers == [identifier])
            }
            #expect(await app.runs() == true)
            let status = try await app.open { try await $0.federation.status() }
            #expect(status.pending == 0 && status.roundsSent > 0)
            #expect(status.spent == 0.5 * Double(status.roundsSent))
        }
    }

    @Test func whoeverHasLeftTakesNoPart() async throws {
        try await withFolder { folder in
            let app = try App(in: folder, secondsApart: 0)
            try await app.join()
            try app.federation.schedule()
            #expect(await app.runs() == true)
            app.federation.cancel()
            #expect(system.launch(identifier) == .noRequest)
            try await app.open { try await $0.federation.leave(deleting: app.client.device) }
            #expect(!app.client.device.exists)
            try app.federation.schedule()
            #expect(await app.runs() == false)
            #expect(app.last?.isNotJoined == true)
            #expect(!app.client.device.exists)
        }
    }
}
#endif
