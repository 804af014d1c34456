// SPDX-License-Identifier: Apache-2.0
import Foundation

/// What came of a time in which a device could take part.
public enum FederationOutcome: Sendable {
    /// Rounds were followed, and perhaps one was measured.
    case learned(LearnedTogether)

    /// The user has not joined. Nothing was sent.
    case notJoined

    /// Not now: the server cannot be reached, somebody else trains, or the time was over. Nil: the phone is warm, its user saves power, or
    /// the last round was not long enough ago.
    case waits((any Error)?)

    /// Something is wrong that waiting does not change.
    case failed(any Error)
}

extension FederationOutcome {
    /// Whether there is nothing left to do at another time.
    public var isFinal: Bool {
        switch self {
        case .learned(let done): done.isDone
        case .notJoined, .failed: true
        case .waits: false
        }
    }

    var isSuccess: Bool {
        if case .learned = self { true } else { false }
    }

    /// How long the server wants to be left alone.
    var waitSeconds: Double {
        switch self {
        case .learned(let done): done.waitSeconds
        case .waits(let error): (error as? FederationError)?.retrySeconds ?? 0
        case .notJoined, .failed: 0
        }
    }
}
