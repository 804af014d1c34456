// SPDX-License-Identifier: Apache-2.0
import Bespoke
import Foundation

/// How much of the time and of the memory a model takes in the background, by what its device says now.
package struct Pace: Sendable {
    private let options: Options
    private let reserveMb: Double
    private let device: @Sendable () -> DeviceState

    /// `options`: those that the model is opened with. `reserveMb`: what is left alone.
    package init(options: Options, reserveMb: Double, device: @escaping @Sendable () -> DeviceState) {
        (self.options, self.reserveMb, self.device) = (options, reserveMb, device)
    }

    /// The share of the time in which to compute; nil: stop. iOS ends an app that computes in the background for more than 80% of a minute,
    /// summed over its threads.
    package var share: Double? {
        guard case .goOn(let share) = device().advice else { return nil }
        return min(share, 0.75 / Double(options.threads ?? ProcessInfo.processInfo.activeProcessorCount))
    }

    /// MB that a call of the model may take where the process has them.
    package func budget(of model: PersonalModel) async throws -> Double? {
        let ofBundle = try await model.describe().memoryBytes.map { Double($0) / 1e6 }
        return options.memoryMb ?? ofBundle
    }

    /// `added`: bytes that the call has taken already, which the system no longer counts as available.
    package func adapt(_ model: PersonalModel, _ share: Double, _ budget: Double?, added: Int64 = 0) throws {
        try model.setPace(share)
        if let available = device().availableBytes {
            let free = max(1, Double(available + added) / 1e6 - reserveMb)
            try model.setLimit(memoryMb: min(free, budget ?? free))
        }
    }
}

extension BespokeError {
    /// Whether it may be over the next time.
    package var isPassing: Bool {
        let passing: Set<Kind> = [.stateLocked, .unavailable, .busy, .budgetExceeded, .diskFull]
        return passing.contains(kind)
    }
}
