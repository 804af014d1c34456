// SPDX-License-Identifier: Apache-2.0
#if canImport(BackgroundTasks) && !os(macOS)
import Bespoke
import Foundation

/// Lets a model learn while the phone charges, and when its user asks for it.
///
/// Make one when the app launches, for each process that learns, and call ``register()`` before the launch ends. Call ``schedule()``
/// when there is something to learn. Training runs in slices. When the system takes its time back, or the phone gets warm, what was learned
/// is committed, the model is closed, and the next task goes on there.
public final class BackgroundTraining: Sendable {
    private let task: ProcessingTask

    /// - Parameters:
    ///   - device: what the device says now.
    ///   - onProgress: told where training is, on its thread.
    ///   - onOutcome: told what came of a task, before the system is. Return soon: the system waits.
    public init(
        _ settings: BackgroundSettings, device: @escaping @Sendable () -> DeviceState = { .current },
        onProgress: @escaping @Sendable (CallProgress) -> Void = { _ in }, onOutcome: @escaping @Sendable (Outcome) -> Void
    ) {
        let learner = Learner(settings: settings, device: device)
        task = ProcessingTask(settings.identifier) { report in
            let outcome = await learner.learn { progress in
                report(progress)
                onProgress(progress)
            }
            return ProcessingTask.Ended(isFinal: outcome.isFinal, isSuccess: outcome.isSuccess) { onOutcome(outcome) }
        }
    }

    /// Tells the system what to run. Before the launch of the app ends, and once. False: Info.plist does not permit the identifier.
    public func register() -> Bool {
        task.register()
    }

    /// Asks the system for a time in which the phone charges and nobody uses it, which may be hours away.
    public func schedule() throws {
        try task.schedule()
    }

    /// Takes the request back, and ends what runs at the core's next instruction. What was learned is committed; the next run goes on there.
    public func cancel() {
        task.cancel()
    }

    /// Whether a task of the system learns now.
    public var isRunning: Bool { task.isRunning }

    /// Learns now, as the user asked by a tap. The system shows `title`, `subtitle` and how far it is, and the user may stop it there. It goes
    /// on when the app leaves the foreground. `BGTaskScheduler.Error` where the system cannot run it at once.
    ///
    /// Info.plist permits the identifier of ``BackgroundSettings/identifier`` with `.now.*` behind it.
    @available(iOS 26, *)
    public func learnNow(title: String, subtitle: String) throws {
        try task.runNow(title: title, subtitle: subtitle)
    }
}
#endif
