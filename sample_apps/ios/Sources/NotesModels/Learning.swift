// SPDX-License-Identifier: Apache-2.0
@preconcurrency import BackgroundTasks
import Bespoke
import BespokeBackground
import Foundation

/// The learning that the system gives time for. What came of it is written to a log.
public final class Learning: Sendable {
    /// As in Info.plist.
    public static let identifier = "dev.bespoke.notes.learning"

    private let training: BackgroundTraining
    private let atWork: Flag

    init(
        bundle: URL, state: URL, options: Options, notebook: JSONFile<Notebook>, log: JSONFile<LearningLog>,
        device: @escaping @Sendable () -> DeviceState
    ) {
        let atWork = Flag()
        let isWanted: @Sendable () -> Bool = { (try? notebook.read().learns) ?? false }
        let settings = BackgroundSettings(identifier: Self.identifier, bundle: bundle, state: state, options: options)
        training = BackgroundTraining(settings) {
            // Asked when a task begins and at each step. That it asks is how the app knows that it is at work, and the answer is how the
            // app ends it where the user has switched learning off.
            atWork.value = true
            return isWanted() ? device() : DeviceState(isLowPowerModeEnabled: true)
        } onOutcome: { outcome in
            // What cannot be written is not shown, which is no reason to end the app.
            _ = try? log.change { $0.add(outcome, device: device(), at: Date()) }
            if outcome.endsTheRun {
                _ = try? notebook.change { $0.hasNews = false }
            }
            if !isWanted() {
                Self.cancelRequest()
            }
            atWork.value = false
        }
        self.atWork = atWork
    }

    /// Before the launch of the app ends, and once. False: Info.plist does not permit the identifier.
    public func register() -> Bool {
        training.register()
    }

    /// Whether a task of the system learns now.
    public var isAtWork: Bool { atWork.value }

    func schedule() throws {
        try training.schedule()
    }

    @available(iOS 26, *)
    func learnNow(title: String, subtitle: String) throws {
        try training.learnNow(title: title, subtitle: subtitle)
    }

    /// Takes the request back. A task that runs ends at its next step, once the notebook says that nobody wants to learn.
    func cancel() {
        Self.cancelRequest()
    }

    func hasEnded() async throws {
        while isAtWork {
            try await Task.sleep(for: .milliseconds(20))
        }
    }

    private static func cancelRequest() {
        BGTaskScheduler.shared.cancel(taskRequestWithIdentifier: identifier)
    }
}

extension Outcome {
    fileprivate var endsTheRun: Bool {
        switch self {
        case .judged, .failed: true
        case .goesOn, .waits: false
        }
    }
}

private final class Flag: @unchecked Sendable {
    private let lock = NSLock()
    private var set = false

    var value: Bool {
        get { lock.withLock { set } }
        set { lock.withLock { set = newValue } }
    }
}
