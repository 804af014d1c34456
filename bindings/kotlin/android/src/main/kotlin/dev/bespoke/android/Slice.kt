// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.android

import dev.bespoke.AdapterError
import dev.bespoke.BudgetExceeded
import dev.bespoke.Busy
import dev.bespoke.Cancelled
import dev.bespoke.DataError
import dev.bespoke.DiskFull
import dev.bespoke.Phase
import dev.bespoke.StateError
import dev.bespoke.StateLocked
import dev.bespoke.Trust
import dev.bespoke.Unavailable
import kotlinx.serialization.Serializable

/**
 * Where the app's bundle is, and by what the app knows it. A bundle is code: who can replace it runs with the app's rights. An asset is
 * covered by the signature of the APK; a path is covered by nothing, so it is taken with a pin or a key, or by saying that neither is needed.
 *
 * @property asset name of an asset: the whole bundle in one stored zip. Read in place where the APK stores it uncompressed (`noCompress`) at
 *     a multiple of 64 bytes, else copied once for each version of the app, which costs its size
 * @property path of a folder or zip, where there is no asset
 * @property pinSha256 of manifest.json, in hexadecimal: what the app knows it by
 * @property publicKey ed25519, in hexadecimal, of the one who signs
 * @property requireAuthenticated refuse the bundle without one of these two; by default a path is refused and an asset is not
 */
@Serializable
data class AppBundle(
    val asset: String? = null,
    val path: String? = null,
    val pinSha256: String? = null,
    val publicKey: String? = null,
    val requireAuthenticated: Boolean = path != null,
) {
    init {
        require((asset == null) != (path == null)) { "a bundle is an asset or a path: got ${if (asset == null) "neither" else "both"}" }
        require(!requireAuthenticated || pinSha256 != null || publicKey != null) {
            "The bundle '${asset ?: path}': got neither a pinned sha256 nor a public key; expected one of them, because a bundle is code. " +
                "Give pinSha256 or publicKey, or requireAuthenticated = false where nobody else can write there."
        }
        trust  // it refuses what is no key
    }

    internal val trust get() = Trust(pinSha256, publicKey, requireAuthenticated)
}

/** Why a slice ended before its time, in a committed state. The next one waits. */
@Serializable
enum class Pause {
    /** The device is about to be slowed down for its heat. */
    HOT,

    /** The user asked the device to save power. */
    POWER_SAVE,

    /** The system has no memory left for any of the bundle's plans. */
    MEMORY,

    /** "Learn now" trains, or another process does. */
    BUSY,

    /** The user has given nothing to learn from yet. */
    NO_EXAMPLES,

    /** The device has no room for what training writes. */
    DISK,

    /** An error that the next slice may not meet, for instance because an example was forgotten meanwhile. */
    ERROR,
}

/** What the training process is asked for. */
@Serializable
internal data class SliceOrder(
    val bundle: AppBundle,
    val name: String,
    val seconds: Double,
    val method: String?,
    val ladder: PlanLadder,
    val isForeground: Boolean,
)

/** Where it is. */
@Serializable
internal data class SliceProgress(
    val phase: Phase, val step: Long, val steps: Long, val loss: Double?, val addedBytes: Long, val limitBytes: Long?,
)

/**
 * How a slice ended in the training process.
 *
 * @property last what it did; null where its call did not come to a report
 * @property isWhole no run is left to go on with
 * @property rungs of the bundle, for the ladder; 0 where it was not opened
 * @property tookTooMuch the plans of its rung took more than their own budget: as a memory kill to the ladder
 * @property failure what an error said. With a [pause] the next slice tries again, without one none would go better
 */
@Serializable
internal data class SliceEnd(
    val last: LastSlice? = null,
    val isWhole: Boolean = false,
    val rungs: Int = 0,
    val pause: Pause? = null,
    val tookTooMuch: Boolean = false,
    val failure: String? = null,
)

/** How a slice ends that an error ended: whether to try again says the kind of the error. */
internal fun endBy(error: Exception): SliceEnd {
    val said = (error.message ?: error.javaClass.name).take(MOST_CHARACTERS)
    return when (error) {
        is StateLocked, is Busy -> SliceEnd(pause = Pause.BUSY)  // by another process, which ends
        is DiskFull, is CopyFailed -> SliceEnd(pause = Pause.DISK, failure = said)
        // Of the state, which another call may have changed meanwhile, of the time or of the memory of this slice. A damaged state
        // says the same, so these are tried a few times in a row and not for ever.
        is StateError, is DataError, is AdapterError, is Unavailable, is Cancelled, is BudgetExceeded ->
            SliceEnd(pause = Pause.ERROR, failure = said)
        else -> SliceEnd(failure = said)  // of the bundle, the settings or the app
    }
}

private const val MOST_CHARACTERS = 2000  // WorkManager takes 10,240 bytes of what a worker says, and a character has up to 3

/** What a message without contents says. */
@Serializable
internal data object Stop
