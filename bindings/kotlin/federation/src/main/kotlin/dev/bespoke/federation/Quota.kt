// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.federation

import kotlinx.serialization.SerialName
import kotlinx.serialization.Serializable
import kotlinx.serialization.SerializationException
import kotlinx.serialization.json.Json

/**
 * How often a device takes part. The core says how many rounds it has measured in its life; here is since when that many. So a round whose
 * process was killed counts too: it is seen the next time.
 */
internal class Quota(private val file: DurableFile) {
    /** The milliseconds from [now] until a device that has measured [rounds] in its life may measure again after a rest of [rest]. */
    fun left(rounds: Long, now: Long, rest: Long): Long = file.alone {
        val before = read()
        val since = when {
            before == null && rounds == 0L -> return@alone 0
            before == null || before.rounds != rounds || before.at > now -> now.also { write(Kept(rounds, it)) }  // or the clock was set back
            else -> before.at
        }
        (since + rest - now).coerceAtLeast(0)
    }

    private fun read(): Kept? = try {
        file.read()?.let { Json.decodeFromString(Kept.serializer(), it) }
    } catch (_: SerializationException) {
        null
    }

    private fun write(kept: Kept) = file.write(Json.encodeToString(Kept.serializer(), kept))

    @Serializable
    private class Kept(val rounds: Long, @SerialName("at_ms") val at: Long)
}
