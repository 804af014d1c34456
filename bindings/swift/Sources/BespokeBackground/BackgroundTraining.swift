// SPDX-License-Identifier: Apache-2.0
#if canImport(BackgroundTasks) && !os(macOS)
@preconcurrency import BackgroundTasks
import Bespoke
import Foundation

/// Lets a model learn while the phone charges, and when its user asks for it.
///
/// Make one when the app launches, for each process that learns, and call ``register()`` before the launch ends. Call ``schedule()``
/// when there is something to learn. Training runs in slices. When the system takes its time back, or the phone gets warm, what was learned
/// is committed, the model is closed, and the next task goes on there.
public final class BackgroundTraining: Sendable {
    private let settings: BackgroundSettings
    private let learner: Learner
    private let onProgress: @Sendable (CallProgress) -> Void
    private let onOutcome: @Sendable (Outcome) -> Void
    private let now = Locked(Now())

    private struct Now {
        var isWanted = false
        var isCancelled = false
        var running: [UUID: Task<Void, Never>] = [:]
    }

    /// - Parameters:
    ///   - device: what the device says now.
    ///   - onProgress: told where training is, on its thread.
    ///   - onOutcome: told what came of a task, before the system is. Return soon: the system waits.
    public init(
        _ settings: BackgroundSettings, device: @escaping @Sendable () -> DeviceState = { .current },
        onProgress: @escaping @Sendable (CallProgress) -> Void = { _ in }, onOutcome: @escaping @Sendable (Outcome) -> Void
    ) {
        self.settings = settings
        learner = Learner(settings: settings, device: device)
        self.onProgress = onProgress
        self.onOutcome = onOutcome
    }

    /// Tells the system what to run. Before the launch of the app ends, and once. False: Info.plist does not permit the identifier.
    public func register() -> Bool {
        BGTaskScheduler.shared.register(forTaskWithIdentifier: settings.identifier, using: nil) { [self] task in
            run(Given(task: task))
        }
    }

    /// Asks the system for a time in which the phone charges and nobody uses it, which may be hours away.
    public func schedule() throws {
        now.withLock { ($0.isWanted, $0.isCancelled) = (true, false) }
        try submit()
    }

    /// Takes the request back, and ends what runs at the core's next instruction. What was learned is committed; the next run goes on there.
    public func cancel() {
        let running = now.withLock { now in
            (now.isWanted, now.isCancelled) = (false, true)
            return now.running.values
        }
        BGTaskScheduler.shared.cancel(taskRequestWithIdentifier: settings.identifier)
        for work in running {
            work.cancel()
        }
    }

    /// Whether a task of the system learns now.
    public var isRunning: Bool { now.withLock { !$0.running.isEmpty } }

    private func submit() throws {
        let request = BGProcessingTaskRequest(identifier: settings.identifier)
        request.requiresExternalPower = true
        request.requiresNetworkConnectivity = false
        try BGTaskScheduler.shared.submit(request)
    }

    /// Learns now, as the user asked by a tap. The system shows `title`, `subtitle` and how far it is, and the user may stop it there. It goes
    /// on when the app leaves the foreground. `BGTaskScheduler.Error` where the system cannot run it at once.
    ///
    /// Info.plist permits the identifier of ``BackgroundSettings/identifier`` with `.now.*` behind it.
    @available(iOS 26, *)
    public func learnNow(title: String, subtitle: String) throws {
        let identifier = "\(settings.identifier).now.\(UUID().uuidString)"
        BGTaskScheduler.shared.register(forTaskWithIdentifier: identifier, using: nil) { [self] task in
            run(Given(task: task))
        }
        now.withLock { $0.isCancelled = false }
        let request = BGContinuedProcessingTaskRequest(identifier: identifier, title: title, subtitle: subtitle)
        request.strategy = .fail
        try BGTaskScheduler.shared.submit(request)
    }

    private func run(_ given: Given) {
        // First of all: a task that ends by a kill leaves a request behind.
        now.withLock { $0.isWanted = false }
        try? submit()
        let id = UUID()
        let work = now.withLock { now in
            let work = Task(priority: .utility) { await learn(given, id) }
            now.running[id] = work
            return work
        }
        given.task.expirationHandler = { work.cancel() }
        if now.withLock({ $0.isCancelled }) {  // while it was launched
            cancel()
        }
    }

    private func learn(_ given: Given, _ id: UUID) async {
        let outcome = await learner.learn { [onProgress] progress in
            given.report(progress)
            onProgress(progress)
        }
        let isOver = now.withLock { $0.isCancelled || outcome.isFinal && !$0.isWanted }  // nothing new came meanwhile
        if isOver {
            BGTaskScheduler.shared.cancel(taskRequestWithIdentifier: settings.identifier)
        }
        onOutcome(outcome)
        _ = now.withLock { $0.running.removeValue(forKey: id) }
        given.task.setTaskCompleted(success: outcome.isSuccess)
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
