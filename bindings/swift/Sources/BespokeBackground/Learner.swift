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
    let settings: BackgroundSettings
    let device: @Sendable () -> DeviceState

    /// Errors that may be over the next time.
    private static let passing: Set<BespokeError.Kind> = [.stateLocked, .unavailable, .busy, .budgetExceeded, .diskFull]

    /// Cancelled with its task, at the next instruction of the core.
    func learn(_ onProgress: @escaping @Sendable (CallProgress) -> Void) async -> Outcome {
        do {
            guard share() != nil else { return .goesOn(nil) }
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
            let ofBundle = try await model.describe().memoryBytes.map { Double($0) / 1e6 }
            let budget = settings.options.memoryMb ?? ofBundle
            var training = settings.training
            training.seconds = settings.sliceSeconds
            var last: TrainReport?
            let isShort = Locked(false)
            let warnings = Task {
                for await _ in DeviceState.memoryWarnings { isShort.withLock { $0 = true } }
            }
            defer { warnings.cancel() }
            while !Task.isCancelled, let share = self.share() {
                if isShort.withLock({ $0 }) {
                    isShort.withLock { $0 = false }
                    try await model.trim()
                }
                try adapt(model, share, budget, added: 0)
                let grown = Growth()
                let report = try await model.train(training) { progress in
                    onProgress(progress)
                    let added = grown.bytes(at: progress)
                    guard progress.phase == .step else { return }
                    if let share = self.share(), !isShort.withLock({ $0 }) {
                        try? adapt(model, share, budget, added: added)
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
        case let error as BespokeError where Self.passing.contains(error.kind): .waits(error)
        default: .failed(error)
        }
    }

    /// The share of the time in which to compute; nil: stop. iOS ends an app that computes in the background for more than 80% of a minute,
    /// summed over its threads.
    private func share() -> Double? {
        guard case .goOn(let share) = device().advice else { return nil }
        return min(share, 0.75 / Double(settings.options.threads ?? ProcessInfo.processInfo.activeProcessorCount))
    }

    /// `budget`: MB that training may take where the process has them. `added`: bytes that the call has taken already, which the system no
    /// longer counts as available.
    private func adapt(_ model: PersonalModel, _ share: Double, _ budget: Double?, added: Int64) throws {
        try model.setPace(share)
        if let available = device().availableBytes {
            let free = max(1, Double(available + added) / 1e6 - settings.reserveMb)
            try model.setLimit(memoryMb: min(free, budget ?? free))
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
