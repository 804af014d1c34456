// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.federation

/**
 * A server of federated learning cannot be reached, or refuses what was sent.
 *
 * @property subject what it is about
 * @property got what was found
 * @property expected what should be
 * @property nextStep what to do
 * @property status of the server's answer, 403 where a token is missing; null: there was no answer that could be used
 * @property retrySeconds the wait that the server asks for; 0 where it asks for none
 */
class ServerError internal constructor(
    val subject: String,
    val got: String,
    val expected: String,
    val nextStep: String,
    val status: Int? = null,
    val retrySeconds: Long = 0,
) : RuntimeException("$subject: got $got; expected $expected. $nextStep")
