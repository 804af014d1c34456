// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.delivery

import dev.bespoke.Trust
import kotlinx.serialization.Serializable
import okhttp3.HttpUrl.Companion.toHttpUrlOrNull

/**
 * A bundle as `bespoke pack` wrote it and a server has it. It is kept until it has come, so it holds data and no code.
 *
 * @property weights, [method] the two archives; the weights are not asked for where the installed bundle has the same
 * @property deltas each goes over one older bundle and is smaller than [method]: those that the app knows
 * @property name of the bundle on this device: one for each that the app uses
 * @property pinSha256 of manifest.json, in hexadecimal, where the app knows its bundle by that
 * @property publicKey ed25519, 64 hexadecimal digits, where it knows its bundle by who signed it. Without either the install takes what the
 *     sha256 of the archives says; `AppBundle` wants one of them for the folder
 */
@Serializable
data class BundleDownload(
    val weights: Archive,
    val method: Archive,
    val deltas: List<Delta> = emptyList(),
    val name: String = "chat",
    val pinSha256: String? = null,
    val publicKey: String? = null,
) {
    init {
        requireName(name)
        trust  // it refuses what is no key
    }

    internal val trust get() = Trust(pinSha256, publicKey)
}

/** It becomes a folder's. */
internal fun requireName(name: String) =
    require(name.matches(Regex("[A-Za-z0-9_-]{1,64}"))) { "the name of a bundle is letters, digits, _ and -: got '$name'" }

/** A file of a server. [sha256] and [bytes] are the app's word against the server's: what differs is not used. */
@Serializable
data class Archive(val url: String, val sha256: String, val bytes: Long) {
    init {
        require(sha256.matches(Regex("[0-9a-f]{64}"))) { "a sha256 is 64 hexadecimal digits in lower case: got '$sha256'" }
        require(bytes > 0) { "an archive has bytes: got $bytes of $url" }
        val parsed = url.toHttpUrlOrNull()
        require(parsed != null && (parsed.isHttps || parsed.host == "127.0.0.1")) { "an archive comes by https: got '$url'" }
    }
}

/** What makes the new bundle of the one whose manifest.json has the sha256 [since]. */
@Serializable
data class Delta(val since: String, val archive: Archive)

/** A delivery that goes on failing if it is tried again. */
class DeliveryError internal constructor(val subject: String, val got: String, val expected: String, val nextStep: String) :
    RuntimeException("$subject: got $got; expected $expected. $nextStep")
