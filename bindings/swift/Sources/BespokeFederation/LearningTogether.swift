// SPDX-License-Identifier: Apache-2.0
import Bespoke
import Foundation

/// What one call of ``Bespoke/PersonalModel/learnTogether(_:rounds:seconds:onProgress:)`` has done.
public struct LearnedTogether: Hashable, Sendable {
    /// Rounds whose numbers were made in this call.
    public let measured: [Int64]

    /// Rounds that the shared adapter has followed in this call.
    public let followed: Int64

    /// The last round that it has followed.
    public let round: Int64

    /// Until the server wants to be asked again.
    public let waitSeconds: Double

    /// Whether the task has ended.
    public let isDone: Bool
}

extension PersonalModel {
    /// Follows the rounds that have ended and measures for at most `rounds` that are open. The user has joined before.
    ///
    /// What a killed call leaves is sent by the next one. Nothing is measured or sent twice.
    ///
    /// - Parameters:
    ///   - client: to the server that has let this device in.
    ///   - rounds: most rounds to measure.
    ///   - seconds: deadline of the whole call; nil: none. ``BespokeError/Kind/cancelled`` where it falls into a computation.
    /// - Throws: ``FederationError`` where the server cannot be reached or refuses, `CancellationError` where the task was cancelled.
    @discardableResult
    public func learnTogether(
        _ client: FederationClient, rounds: Int = 1, seconds: Double? = nil, onProgress: (@Sendable (CallProgress) -> Void)? = nil
    ) async throws -> LearnedTogether {
        guard rounds >= 1 else {
            throw FederationError(
                kind: .config, subject: "learnTogether.rounds", got: "\(rounds)", expected: "1 or more",
                nextStep: "Leave it out for one round.")
        }
        let clock = ContinuousClock()
        let ends = seconds.map { clock.now + .seconds($0) }
        var (measured, followed, asks): ([Int64], Int64, Int) = ([], 0, 0)
        var (waitSeconds, isDone) = (0.0, false)
        steps: while ends.map({ clock.now < $0 }) ?? true {
            try Task.checkCancellation()
            let request = try await federation.request()
            switch request.step {
            case .ask:
                guard asks <= 2 * rounds else { break steps }  // a round is asked for before it is measured and after that
                asks += 1
                try await federation.respond(request, client.ask(request.body))
            case .fetch:
                try await federation.respond(request, client.fetch(request.sha256, offset: request.offset, size: request.size))
            case .takePart:
                guard measured.count < rounds else { break steps }
                let left = ends.map { max(1e-3, clock.now.duration(to: $0) / .seconds(1)) }
                let report = try await federation.takePart(seconds: left, onProgress: onProgress)
                followed += report.followed
                if let round = report.measured {
                    measured.append(round)
                    try client.device.measured(at: Date())
                }
            default:  // to wait, or done
                (waitSeconds, isDone) = (request.waitSeconds, request.step == .done)
                break steps
            }
        }
        return LearnedTogether(
            measured: measured, followed: followed, round: try await federation.status().round, waitSeconds: waitSeconds, isDone: isDone)
    }
}

extension Federation {
    /// Takes the consent back and deletes the device's key too, so that the server cannot know this device again.
    public func leave(deleting device: DeviceKey) async throws {
        try await leave()
        try device.delete()
    }
}
