// SPDX-License-Identifier: Apache-2.0
import Bespoke
import Foundation

/// What came of a time in which a model could learn.
public enum Outcome: Sendable {
    /// A run ended: the gate accepted or refused what it learned.
    case judged(TrainReport)

    /// What was learned is committed, and the run goes on next time. Nil: there was no time for a step.
    case goesOn(TrainReport?)

    /// Not now: somebody else trains, the device was not unlocked since it started, or there is too little memory.
    case waits(BespokeError)

    /// Something is wrong that waiting does not change.
    case failed(any Error)
}

extension Outcome {
    /// Whether there is nothing left to do at another time.
    public var isFinal: Bool {
        switch self {
        case .judged, .failed: true
        case .goesOn, .waits: false
        }
    }

    var isSuccess: Bool {
        if case .judged = self { true } else { false }
    }
}

/// Learns in slices for as long as it may. The model is closed when it returns: a suspended app must not hold the locks of its state.
struct Learner: Sendable {
    private let settings: BackgroundSettings
    private let pace: Pace

    init(settings: BackgroundSettings, device: @escaping @Sendable () -> DeviceState) {
        self.settings = settings
        pace = Pace(options: settings.options, reserveMb: settings.reserveMb, device: device)
    }

    /// Cancelled with its task, at the next instruction of the core.
    func learn(_ onProgress: @escaping @Sendable (CallProgress) -> Void) async -> Outcome {
        do {
            guard pace.share != nil else { return .goesOn(nil) }
            let model = try await PersonalModel.open(bundle: settings.bundle, state: settings.state, options: settings.options)
            let outcome = await self.outcome(of: model, onProgress)
            try? await model.close()
            return outcome
        } catch {
            return self.outcome(of: error)
        }
    }

    private func outcome(
        of model: PersonalModel, _ onProgress: @escaping @Sendable (CallProgress) -> Void
    ) async -> Outcome {
        do {
            let budget = try await pace.budget(of: model)
            var training = settings.training
            training.seconds = settings.sliceSeconds
            var last: TrainReport?
            let isShort = Locked(false)
            let warnings = Task {
                for await _ in DeviceState.memoryWarnings { isShort.withLock { $0 = true } }
            }
            defer { warnings.cancel() }
            while !Task.isCancelled, let share = pace.share {
                if isShort.withLock({ $0 }) {
                    isShort.withLock { $0 = false }
                    try await model.trim()
                }
                try pace.adapt(model, share, budget)
                let grown = Growth()
                let report = try await model.train(training) { progress in
                    onProgress(progress)
                    let added = grown.bytes(at: progress)
                    guard progress.phase == .step else { return }
                    if let share = pace.share, !isShort.withLock({ $0 }) {
                        try? pace.adapt(model, share, budget, added: added)
                    } else {
                        try? model.interrupt()
                    }
                }
                if report.accepted != nil { return .judged(report) }
                last = report
                training.newRun = false
            }
            return .goesOn(last)
        } catch {
            return outcome(of: error)
        }
    }

    private func outcome(of error: any Error) -> Outcome {
        switch error {
        case is CancellationError: .goesOn(nil)
        case let error as BespokeError where error.isPassing: .waits(error)
        default: .failed(error)
        }
    }
}

/// What a call has added to its process, by what it tells: first of all when it begins. Used on the call's thread alone.
private final class Growth: @unchecked Sendable {
    private var first: Int64?

    func bytes(at progress: CallProgress) -> Int64 {
        let base = first ?? progress.footprintBytes
        first = base
        return max(0, progress.footprintBytes - base)
    }
}
