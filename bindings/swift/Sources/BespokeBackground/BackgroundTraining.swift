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
    private let onOutcome: @Sendable (Outcome) -> Void
    private let isWanted = Flag()

    /// - Parameters:
    ///   - device: what the device says now.
    ///   - onOutcome: told what came of a task, before the system is. Return soon: the system waits.
    public init(
        _ settings: BackgroundSettings, device: @escaping @Sendable () -> DeviceState = { .current },
        onOutcome: @escaping @Sendable (Outcome) -> Void
    ) {
        self.settings = settings
        learner = Learner(settings: settings, device: device)
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
        isWanted.value = true
        try submit()
    }

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
        let request = BGContinuedProcessingTaskRequest(identifier: identifier, title: title, subtitle: subtitle)
        request.strategy = .fail
        try BGTaskScheduler.shared.submit(request)
    }

    private func run(_ given: Given) {
        // First of all: a task that ends by a kill leaves a request behind.
        isWanted.value = false
        try? submit()
        let work = Task(priority: .utility) { [self] in
            let outcome = await learner.learn { given.report($0) }
            if outcome.isFinal && !isWanted.value {  // nothing new came meanwhile
                BGTaskScheduler.shared.cancel(taskRequestWithIdentifier: settings.identifier)
            }
            onOutcome(outcome)
            given.task.setTaskCompleted(success: outcome.isSuccess)
        }
        given.task.expirationHandler = { work.cancel() }
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
