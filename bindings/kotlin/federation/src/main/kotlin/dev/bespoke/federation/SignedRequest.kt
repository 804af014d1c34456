// SPDX-License-Identifier: Apache-2.0
// What a device signs of each request, and the headers that carry it: server/README.md says it line by line, and
// bindings/schema/signed_request_vectors.json holds the clients in all languages to it.
package dev.bespoke.federation

import java.security.MessageDigest
import java.util.Base64

internal const val DEVICE_HEADER = "Bespoke-Device"
internal const val COUNTER_HEADER = "Bespoke-Counter"
internal const val SIGNATURE_HEADER = "Bespoke-Signature"
internal const val MAX_COUNTER = (1L shl 53) - 1  // the largest whole number that every language's JSON and doubles hold
private const val VERSION = "bespoke-request-1"
private const val HALF_BYTES = 32  // of r and of s
private const val DER_SEQUENCE = 0x30
private const val DER_INTEGER = 0x02

/** The id of the device with this key, a SubjectPublicKeyInfo in DER. */
internal fun deviceId(publicKey: ByteArray): String = sha256(publicKey)

/** What a device signs. [path]: with the query. [round]: of the body's document, if it is one. */
internal fun signedBytes(method: String, path: String, body: ByteArray, device: String, round: Long?, counter: Long): ByteArray =
    listOf(VERSION, method, path, sha256(body), device, round?.toString() ?: "-", "$counter").joinToString("") { "$it\n" }.toByteArray()

/** r and s, 32 bytes each, of a signature in DER: a sequence of two integers, as key stores give it. */
internal fun rawSignature(der: ByteArray): ByteArray {
    require(der.size > 2 && der[0].toInt() == DER_SEQUENCE && der[1].toInt() == der.size - 2) { "no signature of P-256 in DER: ${der.size} bytes" }
    var at = 2
    val raw = ByteArray(2 * HALF_BYTES)
    for (end in listOf(HALF_BYTES, 2 * HALF_BYTES)) {
        require(at + 2 <= der.size && der[at].toInt() == DER_INTEGER) { "no integer at byte $at of a signature in DER" }
        val from = at + 2
        val to = from + der[at + 1]
        require(to in from + 1..der.size) { "an integer that does not end within a signature in DER" }
        val digits = der.copyOfRange(from, to).dropWhile { it == 0.toByte() }  // DER puts a zero before a high bit, and leaves others out
        require(digits.size <= HALF_BYTES) { "an integer of ${digits.size} bytes in a signature of P-256" }
        digits.toByteArray().copyInto(raw, end - digits.size)
        at = to
    }
    require(at == der.size) { "more than two integers in a signature in DER" }
    return raw
}

internal fun base64Url(bytes: ByteArray): String = Base64.getUrlEncoder().withoutPadding().encodeToString(bytes)

private fun sha256(bytes: ByteArray): String =
    MessageDigest.getInstance("SHA-256").digest(bytes).joinToString("") { "%02x".format(it) }
