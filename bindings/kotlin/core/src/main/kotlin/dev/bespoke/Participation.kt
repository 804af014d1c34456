// SPDX-License-Identifier: Apache-2.0
package dev.bespoke

/**
 * A user's part in what the users of an app learn together.
 *
 * The SDK has no network of its own. The app carries what passes between it and the server: [request] says what to do next, and [respond]
 * takes what came for it. `learnTogether` of the module bespoke-federation does so over HTTPS.
 *
 * All calls but [status] and [leave] raise [ConfigError] without the user's consent.
 */
class Participation internal constructor(
    private val handle: Handle,
    private val receiver: (stop: ((Progress) -> Boolean)?) -> ProgressReceiver,
) {
    /** Gives the user's consent. Show [FederationStatus.explanation] of [status] first. */
    suspend fun join(): Unit = handle.call(NativeApi::federationJoin)

    /** Takes the consent back. Deletes what was to be sent, and the shared adapter; one that was adopted goes on answering. */
    suspend fun leave(): Unit = handle.call(NativeApi::federationLeave)

    /** What the user takes part in, and what it has cost. */
    suspend fun status(): FederationStatus =
        handle.stored { decoded(FederationStatus.serializer(), NativeApi.federationStatus(it)) }

    /** What to do next. The same numbers are in it again and again until the server confirms them. */
    suspend fun request(): FederationRequest =
        handle.stored { decoded(FederationRequest.serializer(), NativeApi.federationRequest(it)) }

    /**
     * Takes what came for a request: the server's answer, or bytes of a file. [SignatureError] for an answer that the bundle's server has
     * not signed, and [DataError] for one that no server may send. Nothing has changed then. No bytes say that the server no longer has
     * the file (HTTP 404 or 410): the next request asks the server again.
     */
    suspend fun respond(request: FederationRequest, response: ByteArray): Unit = handle.call { model, call ->
        NativeApi.federationRespond(model, json.encodeToString(FederationRequest.serializer(), request).bytes(), response, call)
    }

    /**
     * Follows the rounds that have ended, and measures for the one that is open. Files that are still missing may be fetched meanwhile:
     * the call waits for them. [seconds] is its deadline, null for none. [Cancelled] then, and where [stop], which is asked whenever the
     * call says where it is, returns true; rounds that were followed are kept. [StateLocked] while somebody trains.
     */
    suspend fun takePart(seconds: Double? = null, stop: ((Progress) -> Boolean)? = null): FederationReport = handle.call { model, call ->
        decoded(FederationReport.serializer(), NativeApi.federationTakePart(model, call.with(receiver(stop), seconds ?: 0.0)))
    }

    /**
     * Judges the shared adapter by the user's own examples, as [PersonalModel.train] judges what it learned. Where it is accepted, it
     * answers from now on and the next run starts from it. What a run learns from the user is never sent.
     */
    suspend fun adopt(): TrainReport = handle.call { model, call ->
        decoded(TrainReport.serializer(), NativeApi.federationAdopt(model, call.with(receiver(null))))
    }
}
