// SPDX-License-Identifier: Apache-2.0
#if canImport(BackgroundTasks) && !os(macOS)
import Bespoke
import BespokeBackground
import Foundation

/// Lets a device take part in rounds while the phone charges and has a network, at most once a day unless the settings say otherwise.
///
/// Make one when the app launches and call ``register()`` before the launch ends. Call ``schedule()`` once the user has joined. It asks the
/// system for the next time itself, until the task of the federation has ended or the user has left.
public final class BackgroundFederation: Sendable {
    private let task: ProcessingTask

    /// - Parameters:
    ///   - device: what the device says now.
    ///   - onProgress: told where a call is, on its thread.
    ///   - onOutcome: told what came of a time, before the system is. Return soon: the system waits.
    public init(
        _ settings: FederationSettings, device: @escaping @Sendable () -> DeviceState = { .current },
        onProgress: @escaping @Sendable (CallProgress) -> Void = { _ in }, onOutcome: @escaping @Sendable (FederationOutcome) -> Void
    ) {
        let participant = Participant(settings: settings, device: device)
        let asked = Locked(Date.distantPast)  // the server wants to be left alone until then
        task = ProcessingTask(settings.identifier, needsNetwork: true) {
            [participant.earliest, asked.withLock { $0 > Date() ? $0 : nil }].compactMap(\.self).max()
        } work: { report in
            let outcome = await participant.takePart { progress in
                report(progress)
                onProgress(progress)
            }
            asked.withLock { $0 = Date(timeIntervalSinceNow: outcome.waitSeconds) }
            return ProcessingTask.Ended(isFinal: outcome.isFinal, isSuccess: outcome.isSuccess) { onOutcome(outcome) }
        }
    }

    /// Tells the system what to run. Before the launch of the app ends, and once. False: Info.plist does not permit the identifier.
    public func register() -> Bool {
        task.register()
    }

    /// Asks the system for a time in which the phone charges and has a network, which may be hours away.
    public func schedule() throws {
        try task.schedule()
    }

    /// Takes the request back, and ends what runs at the core's next instruction. Numbers that were made stay, and are sent the next time.
    public func cancel() {
        task.cancel()
    }

    /// Whether a task of the system takes part now.
    public var isRunning: Bool { task.isRunning }
}
#endif
