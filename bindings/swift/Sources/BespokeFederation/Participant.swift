// SPDX-License-Identifier: Apache-2.0
import Bespoke
import BespokeBackground
import Foundation

/// Takes part in rounds in the background. The model is closed when it returns: a suspended app must not hold the locks of its state.
struct Participant: Sendable {
    private let settings: FederationSettings
    private let pace: Pace

    init(settings: FederationSettings, device: @escaping @Sendable () -> DeviceState) {
        self.settings = settings
        pace = Pace(options: settings.options, reserveMb: settings.reserveMb, device: device)
    }

    /// When numbers may be made again; nil: now. A clock that was set back holds nothing up for longer than usual.
    var earliest: Date? {
        guard let measured = try? settings.client.device.measuredAt() else { return nil }
        let now = Date()
        let next = min(measured, now).addingTimeInterval(settings.secondsApart)
        return next > now ? next : nil
    }

    /// Cancelled with its task, at the next instruction of the core.
    func takePart(_ onProgress: @escaping @Sendable (CallProgress) -> Void) async -> FederationOutcome {
        do {
            guard pace.share != nil, earliest == nil else { return .waits(nil) }
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
    ) async -> FederationOutcome {
        do {
            guard try await model.federation.status().joined else { return .notJoined }
            guard let share = pace.share else { return .waits(nil) }
            try pace.adapt(model, share, try await pace.budget(of: model))
            let pacing = Task { await watch(model) }
            let warnings = Task { await endOnMemoryWarnings(model) }
            defer {
                pacing.cancel()
                warnings.cancel()
            }
            let client = settings.client
            if try client.device.server() != client.server {
                try await client.enrol(token: settings.token())
            }
            return .learned(try await model.learnTogether(client, rounds: settings.rounds, onProgress: onProgress))
        } catch {
            return outcome(of: error)
        }
    }

    /// While a round is measured, which tells little, the phone may get warm.
    private func watch(_ model: PersonalModel) async {
        while (try? await Task.sleep(for: .seconds(1))) != nil {
            if let share = pace.share {
                try? model.setPace(share)
            } else {
                try? model.interrupt()
            }
        }
    }

    private func endOnMemoryWarnings(_ model: PersonalModel) async {
        for await _ in DeviceState.memoryWarnings {
            try? model.interrupt()
        }
    }

    private func outcome(of error: any Error) -> FederationOutcome {
        switch error {
        case is CancellationError, is URLError: .waits(error)
        case let error as BespokeError where error.isPassing || error.kind == .cancelled: .waits(error)
        case let error as FederationError where error.isPassing: .waits(error)
        default: .failed(error)
        }
    }
}
