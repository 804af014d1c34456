// SPDX-License-Identifier: Apache-2.0
import Bespoke

/// What went wrong, as far as its user can do something about it.
public enum Problem: Equatable, Sendable {
    /// The model is in use.
    case busy
    case other(String)

    public init(_ error: any Error) {
        let busy: Set<BespokeError.Kind> = [.stateLocked, .unavailable, .busy]
        if let error = error as? BespokeError, busy.contains(error.kind) {
            self = .busy
        } else {
            self = .other((error as? BespokeError)?.description ?? error.localizedDescription)
        }
    }
}
