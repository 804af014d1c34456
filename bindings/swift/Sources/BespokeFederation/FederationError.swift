// SPDX-License-Identifier: Apache-2.0
import Foundation

/// What keeps a device from its federation's server. Nothing has changed in the user's state then.
public struct FederationError: Error, Hashable, Sendable {
    /// What is to blame.
    public enum Kind: Hashable, Sendable {
        /// What the app gave cannot work.
        case config

        /// The device's key cannot be made, read or used.
        case key

        /// The server cannot be reached.
        case unreachable

        /// The server refuses, with this status.
        case refused(status: Int)
    }

    /// What is to blame.
    public let kind: Kind

    /// What it is about.
    public let subject: String

    /// What was found.
    public let got: String

    /// What should be.
    public let expected: String

    /// What to do.
    public let nextStep: String

    /// The wait that the server asks for, in seconds; 0 where it asks for none.
    public var retrySeconds: Double = 0
}

extension FederationError: CustomStringConvertible, LocalizedError {
    public var description: String { "\(subject): got \(got), expected \(expected). \(nextStep)" }

    public var errorDescription: String? { description }

    public var recoverySuggestion: String? { nextStep }
}

extension FederationError {
    /// Whether it may be over the next time.
    var isPassing: Bool {
        switch kind {
        case .config, .key: false
        case .unreachable: true
        case .refused(let status): status == 408 || status == 409 || status == 425 || status == 429 || status >= 500
        }
    }
}
