// SPDX-License-Identifier: Apache-2.0
import Dispatch
import Foundation

/// The part of the system behind the scheduler, which a test drives. It follows what Apple documents:
///
/// - Identifiers are permitted by Info.plist, handlers are registered before the launch has ended
///   (.../bgtaskscheduler/register(fortaskwithidentifier:using:launchhandler:)); a continued task's may be registered later
///   (.../performing-long-running-tasks-on-ios-and-ipados).
/// - A request replaces the pending one of its identifier; at most ten of processing tasks are pending (.../bgtaskscheduler/submit(_:)).
/// - A request is launched once, not before its date, and on power where it asks for it (.../bgprocessingtaskrequest).
/// - At the end of its time a task's expiration handler is called. An app that has not completed the task soon after is killed
///   (.../bgtask/expirationhandler).
/// - An app that the user has force-quit is not launched until the user opens it.
/// - A continued task is submitted in the foreground, and the user may stop it, which expires it.
public final class System: @unchecked Sendable {
    public enum Launch: Equatable, Sendable {
        case launched
        case noRequest, tooEarly, notCharging, forceQuit
    }

    let warned = Warned()
    private let lock = NSLock()
    private let queue = DispatchQueue(label: "launch handlers")
    private var handlers: [String: (BGTask) -> Void] = [:]
    private var pending: [String: BGTaskRequest] = [:]
    private var running: [String: BGTask] = [:]
    private var completed: [String: Bool] = [:]
    private var permitted: Set<String> = []
    private var launching = true
    private var quit = false

    /// What the test decides.
    public var now = Date()
    public var isCharging = true
    public var isInForeground = false

    /// A process that begins: `permitted` are the identifiers of its Info.plist, of which one may end in `*`.
    public func startProcess(permitted: Set<String>) {
        lock.withLock {
            handlers = [:]
            running = [:]
            pending = [:]
            completed = [:]
            quit = false
            self.permitted = permitted
            launching = true
        }
    }

    public func launchEnds() {
        lock.withLock { launching = false }
    }

    /// Tells the process that memory is short.
    public func warnOfLittleMemory() {
        warned.warn()
    }

    public func forceQuit() {
        lock.withLock { quit = true }
    }

    public func userOpensTheApp() {
        lock.withLock {
            quit = false
            isInForeground = true
        }
    }

    public var pendingIdentifiers: Set<String> { lock.withLock { Set(pending.keys) } }

    public var runningIdentifiers: Set<String> { lock.withLock { Set(running.keys) } }

    public func pendingRequest(_ identifier: String) -> BGTaskRequest? { lock.withLock { pending[identifier] } }

    public func runningTask(_ identifier: String) -> BGTask? { lock.withLock { running[identifier] } }

    /// Launches what is pending, if the rules allow it.
    public func launch(_ identifier: String) -> Launch {
        let handler: (BGTask) -> Void
        let task: BGTask
        do {
            lock.lock()
            defer { lock.unlock() }
            guard !quit else { return .forceQuit }
            guard let request = pending[identifier] else { return .noRequest }
            if let earliest = request.earliestBeginDate, earliest > now { return .tooEarly }
            if let processing = request as? BGProcessingTaskRequest, processing.requiresExternalPower, !isCharging { return .notCharging }
            guard let registered = handlers[identifier] else { fatalError("the app has no handler for \(identifier): it is killed") }
            pending[identifier] = nil
            handler = registered
            let ended: @Sendable (Bool) -> Void = { [unowned self] in self.complete(identifier, $0) }
            task =
                request is BGContinuedProcessingTaskRequest
                ? BGContinuedProcessingTask(identifier, ended: ended) : BGProcessingTask(identifier, ended: ended)
            running[identifier] = task
            completed[identifier] = nil
        }
        nonisolated(unsafe) let (called, given) = (handler, task)
        queue.async { called(given) }
        return .launched
    }

    /// The task's time ends. Returns whether the app completed it within `seconds`: otherwise it would be killed.
    public func expire(_ identifier: String, seconds: Double = 5) async -> Bool {
        runningTask(identifier)?.expirationHandler?()
        return await hasEnded(identifier, seconds: seconds) != nil
    }

    /// How the task ended, within `seconds`; nil: it still runs.
    public func hasEnded(_ identifier: String, seconds: Double) async -> Bool? {
        let deadline = Date().addingTimeInterval(seconds)
        while Date() < deadline {
            if let success = lock.withLock({ completed[identifier] }) { return success }
            try? await Task.sleep(for: .milliseconds(2))
        }
        return nil
    }

    func register(_ identifier: String, _ handler: @escaping (BGTask) -> Void) -> Bool {
        lock.withLock {
            let continued = permitted.contains { $0.hasSuffix("*") && identifier.hasPrefix($0.dropLast()) }
            guard continued || (launching && permitted.contains(identifier)) else { return false }
            precondition(handlers[identifier] == nil, "\(identifier) is registered twice: the system raises an exception")
            handlers[identifier] = handler
            return true
        }
    }

    func submit(_ request: BGTaskRequest) throws {
        let continued = request is BGContinuedProcessingTaskRequest
        try lock.withLock {
            guard handlers[request.identifier] != nil else { throw BGTaskScheduler.Error(code: .notPermitted) }
            if continued && !isInForeground { throw BGTaskScheduler.Error(code: .unavailable) }
            if !continued && pending[request.identifier] == nil && pending.count >= 10 {
                throw BGTaskScheduler.Error(code: .tooManyPendingTaskRequests)
            }
            pending[request.identifier] = request
        }
        if continued {
            _ = launch(request.identifier)
        }
    }

    func cancel(_ identifier: String) {
        lock.withLock { pending[identifier] = nil }
    }

    private func complete(_ identifier: String, _ success: Bool) {
        lock.withLock {
            precondition(running[identifier] != nil, "\(identifier) was completed before")
            running[identifier] = nil
            completed[identifier] = success
        }
    }
}
