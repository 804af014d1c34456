// SPDX-License-Identifier: Apache-2.0
internal import CBespoke
import Foundation

/// A user's part in what the users of an app learn together: consent, what passes between the device and a server, the shared adapter.
///
/// The core has no network. ``request()`` says what to do next, and the app carries it. `BespokeFederation` does so over HTTPS. Without the
/// user's consent all calls but ``status()`` and ``leave()`` are ``BespokeError/Kind/configError``.
public struct Federation: Sendable {
    let handle: Handle

    /// What the user takes part in, and what it has cost.
    public func status() async throws -> FederationStatus {
        try await handle.storedDocument { model, _, text, error in bespoke_federation_status(model, text, error) }
    }

    /// Gives the user's consent. Show ``FederationStatus/explanation`` first.
    public func join() async throws {
        try await handle.call { model, call in
            try checked { bespoke_federation_join(model, call, $0) }
        }
    }

    /// Takes the consent back. Deletes what was to be sent, and the shared adapter. One that was adopted goes on answering. What was sent
    /// cannot be recalled.
    public func leave() async throws {
        try await handle.call { model, call in
            try checked { bespoke_federation_leave(model, call, $0) }
        }
    }

    /// What to do next. The same numbers are in it again and again until the server confirms them.
    public func request() async throws -> FederationRequest {
        try await handle.storedDocument { model, _, text, error in bespoke_federation_request(model, text, error) }
    }

    /// Takes what came for a request: the server's answer, or bytes of a file. No bytes say that the server no longer has the file (HTTP
    /// 404 or 410): the next request asks the server again.
    ///
    /// - Throws: ``BespokeError/Kind/signatureError`` for an answer that the bundle's server has not signed, and
    ///   ``BespokeError/Kind/dataError`` for one that no server may send. Nothing has changed then.
    public func respond(_ request: FederationRequest, _ response: Data) async throws {
        let json = encoded(request)
        try await handle.call { model, call in
            try withTexts { texts in
                try checked { bespoke_federation_respond(model, texts(json), texts(response), call, $0) }
            }
        }
    }

    /// Follows the rounds that have ended, and measures for the one that is open. Numbers are clipped, noised and kept before they are
    /// offered.
    ///
    /// Files that are still missing may be fetched meanwhile in another task: the call waits for them. Where its task is cancelled, rounds
    /// that were followed are kept.
    ///
    /// - Parameter seconds: deadline of the call; nil: none. ``BespokeError/Kind/cancelled`` where it is reached.
    public func takePart(seconds: Double? = nil, onProgress: (@Sendable (CallProgress) -> Void)? = nil) async throws -> FederationReport {
        try await handle.document(deadline: seconds ?? 0, onProgress: onProgress) { model, _, call, text, error in
            bespoke_federation_take_part(model, call, text, error)
        }
    }

    /// Judges the shared adapter by the user's own examples, as ``PersonalModel/train(_:onProgress:)`` judges what it learned. Where it is
    /// accepted, it answers from now on and the next run starts from it. What a run learns from the user is never sent.
    public func adopt(onProgress: (@Sendable (CallProgress) -> Void)? = nil) async throws -> TrainReport {
        try await handle.document(onProgress: onProgress) { model, _, call, text, error in
            bespoke_federation_adopt(model, call, text, error)
        }
    }
}
