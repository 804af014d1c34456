// SPDX-License-Identifier: Apache-2.0
#if canImport(BackgroundTasks) && !os(macOS)
@preconcurrency import BackgroundTasks
import Bespoke
import Foundation

/// Work that the system runs while the phone charges. Before it begins, the next time is asked for: work that ends by a kill leaves a
/// request behind.
package final class ProcessingTask: Sendable {
    /// What came of the work.
    package struct Ended: Sendable {
        let isFinal, isSuccess: Bool
        let tell: @Sendable () -> Void

        /// `isFinal`: nothing is left to do at another time. `tell` is called before the system hears of it.
        package init(isFinal: Bool, isSuccess: Bool, tell: @escaping @Sendable () -> Void) {
            (self.isFinal, self.isSuccess, self.tell) = (isFinal, isSuccess, tell)
        }
    }

    private let identifier: String
    private let needsNetwork: Bool
    private let earliest: @Sendable () -> Date?
    private let work: @Sendable (@escaping @Sendable (CallProgress) -> Void) async -> Ended
    private let now = Locked(Now())

    private struct Now {
        var isWanted = false
        var isCancelled = false
        var running: [UUID: Task<Void, Never>] = [:]
    }

    /// `earliest`: when the next time may begin; nil: at once. `work` tells where it is, and ends soon where its task is cancelled.
    package init(
        _ identifier: String, needsNetwork: Bool = false, earliest: @escaping @Sendable () -> Date? = { nil },
        work: @escaping @Sendable (@escaping @Sendable (CallProgress) -> Void) async -> Ended
    ) {
        (self.identifier, self.needsNetwork, self.earliest, self.work) = (identifier, needsNetwork, earliest, work)
    }

    package func register() -> Bool {
        register(identifier)
    }

    private func register(_ identifier: String) -> Bool {
        BGTaskScheduler.shared.register(forTaskWithIdentifier: identifier, using: nil) { [self] task in
            run(Given(task: task))
        }
    }

    package func schedule() throws {
        now.withLock { ($0.isWanted, $0.isCancelled) = (true, false) }
        try submit()
    }

    /// Takes the request back, and ends what runs.
    package func cancel() {
        let running = now.withLock { now in
            (now.isWanted, now.isCancelled) = (false, true)
            return now.running.values
        }
        BGTaskScheduler.shared.cancel(taskRequestWithIdentifier: identifier)
        for work in running {
            work.cancel()
        }
    }

    package var isRunning: Bool { now.withLock { !$0.running.isEmpty } }

    private func submit() throws {
        let request = BGProcessingTaskRequest(identifier: identifier)
        request.requiresExternalPower = true
        request.requiresNetworkConnectivity = needsNetwork
        request.earliestBeginDate = earliest()
        try BGTaskScheduler.shared.submit(request)
    }

    @available(iOS 26, *)
    package func runNow(title: String, subtitle: String) throws {
        let continued = "\(identifier).now.\(UUID().uuidString)"
        _ = register(continued)
        now.withLock { $0.isCancelled = false }
        let request = BGContinuedProcessingTaskRequest(identifier: continued, title: title, subtitle: subtitle)
        request.strategy = .fail
        try BGTaskScheduler.shared.submit(request)
    }

    private func run(_ given: Given) {
        now.withLock { $0.isWanted = false }
        try? submit()
        let id = UUID()
        let running = now.withLock { now in
            let running = Task(priority: .utility) { await self.work(given, id) }
            now.running[id] = running
            return running
        }
        given.task.expirationHandler = { running.cancel() }
        if now.withLock({ $0.isCancelled }) {  // while it was launched
            cancel()
        }
    }

    private func work(_ given: Given, _ id: UUID) async {
        let ended = await work { given.report($0) }
        let isOver = now.withLock { $0.isCancelled || ended.isFinal && !$0.isWanted }  // nothing new came meanwhile
        if isOver {
            BGTaskScheduler.shared.cancel(taskRequestWithIdentifier: identifier)
        } else if earliest() != nil {
            try? submit()  // for a later time than was known before
        }
        ended.tell()
        _ = now.withLock { $0.running.removeValue(forKey: id) }
        given.task.setTaskCompleted(success: ended.isSuccess)
    }
}

/// A task of the system. Its class is not marked as `Sendable`, and may be used from any thread.
private struct Given: @unchecked Sendable {
    let task: BGTask

    func report(_ progress: CallProgress) {
        guard #available(iOS 26, *), let continued = task as? BGContinuedProcessingTask, progress.phase == .step else { return }
        continued.progress.totalUnitCount = progress.steps
        continued.progress.completedUnitCount = progress.step
    }
}
#endif
