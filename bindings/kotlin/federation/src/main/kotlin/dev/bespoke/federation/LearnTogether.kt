// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.federation

import dev.bespoke.PersonalModel
import dev.bespoke.Step

/**
 * What one call of [learnTogether] has done.
 *
 * @property measured rounds whose numbers were made in this call
 * @property followed rounds that the shared adapter has followed in this call
 * @property round last round that it has followed
 * @property waitSeconds until the server wants to be asked again
 * @property done whether the task has ended
 */
data class LearnedTogether(
    val measured: List<Long>, val followed: Long, val round: Long, val waitSeconds: Double, val done: Boolean,
)

/**
 * Follows the rounds that have ended and measures for at most [rounds] that are open. The user has joined before. What a killed call
 * leaves is sent by the next one; nothing is measured or sent twice.
 *
 * A coroutine that is cancelled ends it. [seconds] is a deadline of the whole call, null for none: between two steps the call ends
 * there, and [dev.bespoke.Cancelled] is raised where it falls into a computation.
 */
suspend fun learnTogether(
    model: PersonalModel,
    client: FederationClient,
    rounds: Int = 1,
    seconds: Double? = null,
): LearnedTogether {
    require(rounds >= 1) { "learnTogether: rounds: got $rounds; expected 1 or more" }
    return carry(model, client, rounds, seconds)
}

/** With 0 [rounds]: sends what is left to be sent, and takes what the server answers. */
internal suspend fun carry(model: PersonalModel, client: FederationClient, rounds: Int, seconds: Double?): LearnedTogether {
    val ends = seconds?.let { System.nanoTime() + (it * NANOSECONDS).toLong() }
    val measured = mutableListOf<Long>()
    var followed = 0L
    var asks = 0
    var waitSeconds = 0.0
    var done = false
    while (ends == null || System.nanoTime() < ends) {
        val request = model.federation.request()
        when (request.step) {
            Step.ASK -> {
                if (asks == ASKS_OF_A_ROUND * rounds + 1) break
                asks++
                model.federation.respond(request, client.ask(request.body))
            }
            Step.FETCH -> model.federation.respond(request, client.fetch(request.sha256, request.offset, request.size))
            Step.TAKE_PART -> {
                if (measured.size == rounds) break
                val report = model.federation.takePart(ends?.let { maxOf(LEAST_SECONDS, (it - System.nanoTime()) / NANOSECONDS) })
                followed += report.followed
                report.measured?.let(measured::add)
            }
            Step.WAIT, Step.DONE, Step.UNKNOWN -> {  // what a newer core may want is not known here: the app asks again later
                waitSeconds = request.waitSeconds
                done = request.step == Step.DONE
                break
            }
        }
    }
    return LearnedTogether(measured, followed, model.federation.status().round, waitSeconds, done)
}

private const val ASKS_OF_A_ROUND = 2  // before it is measured and after that
private const val LEAST_SECONDS = 1e-3
private const val NANOSECONDS = 1e9
