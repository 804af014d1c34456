// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.delivery

import java.io.File
import java.security.MessageDigest

/** In hexadecimal; of a file that is not there, of nothing. */
internal fun sha256(file: File): String {
    val digest = MessageDigest.getInstance("SHA-256")
    if (file.isFile) {
        file.inputStream().use { bytes ->
            val chunk = ByteArray(1 shl 16)
            generateSequence { bytes.read(chunk).takeIf { it >= 0 } }.forEach { digest.update(chunk, 0, it) }
        }
    }
    return digest.digest().toHex()
}

internal fun sha256(bytes: ByteArray): String = MessageDigest.getInstance("SHA-256").digest(bytes).toHex()

private fun ByteArray.toHex() = joinToString("") { "%02x".format(it) }
