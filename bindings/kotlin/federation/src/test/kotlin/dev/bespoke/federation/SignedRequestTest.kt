// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.federation

import java.security.KeyPairGenerator
import java.security.MessageDigest
import java.security.Signature
import java.security.spec.ECGenParameterSpec
import java.util.Base64
import kotlinx.serialization.SerialName
import kotlinx.serialization.Serializable
import kotlinx.serialization.json.Json
import org.junit.jupiter.api.Assertions.assertArrayEquals
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

/** bindings/schema/signed_request_vectors.json, which holds the clients in all languages. */
class SignedRequestTest {
    private val vectors = json.decodeFromString(Vectors.serializer(), Federated.vectors.readText())

    @Test
    fun `requests are signed as the vectors say`() {
        assertTrue(vectors.requests.size >= 8)
        for (vector in vectors.requests) {
            val signed = signedBytes(vector.method, vector.path, bytes(vector.body), vector.device, vector.round, vector.counter)
            assertEquals(bytes(vector.signed).decodeToString(), signed.decodeToString(), vector.id)
            assertEquals(vector.sha256, MessageDigest.getInstance("SHA-256").digest(signed).joinToString("") { "%02x".format(it) }, vector.id)
        }
    }

    @Test
    fun `keys have the ids that the vectors say`() = vectors.keys.forEach { assertEquals(it.device, deviceId(bytes(it.publicKey)), it.id) }

    @Test
    fun `headers and the largest counter are those of the vectors`() {
        assertEquals(mapOf("device" to DEVICE_HEADER, "counter" to COUNTER_HEADER, "signature" to SIGNATURE_HEADER), vectors.headers)
        assertEquals(vectors.maxCounter, MAX_COUNTER)
    }

    @Test
    fun `signatures in DER become r and s`() {
        for (vector in vectors.signatures) {
            assertArrayEquals(bytes(vector.raw), rawSignature(bytes(vector.der)), vector.id)
            assertEquals(vector.header, base64Url(rawSignature(bytes(vector.der))), vector.id)
        }
    }

    @Test
    fun `signatures of a key verify as r and s`() {
        val pair = KeyPairGenerator.getInstance("EC").apply { initialize(ECGenParameterSpec("secp256r1")) }.generateKeyPair()
        repeat(SIGNATURES) {  // of 256 one has a short r, and of 256 one a short s
            val message = "message $it".toByteArray()
            val der = Signature.getInstance("SHA256withECDSA").run { initSign(pair.private); update(message); sign() }
            val verifier = Signature.getInstance("SHA256withECDSAinP1363Format").apply { initVerify(pair.public); update(message) }
            assertTrue(verifier.verify(rawSignature(der)))
        }
    }

    @Test
    fun `what is no signature in DER is refused`() {
        val der = bytes(vectors.signatures[0].der)
        val wrong = listOf(
            ByteArray(0), der.copyOf(der.size - 1), der + 0, der.copyOfRange(1, der.size), byteArrayOf(0x30, 0), byteArrayOf(0x30, 2, 2, 0),
            byteArrayOf(0x30, 3, 2, 1, 1), byteArrayOf(0x30, 4, 2, 127, 1, 1), byteArrayOf(0x30, 4, 2, -1, 1, 1),
            byteArrayOf(0x30, 0x26, 2, 0x21) + ByteArray(0x21) { 1 } + byteArrayOf(2, 1, 1),
        )
        for (one in wrong) assertThrows(IllegalArgumentException::class.java) { rawSignature(one) }
    }

    @Serializable
    private class Vectors(
        val headers: Map<String, String>,
        @SerialName("max_counter") val maxCounter: Long,
        val keys: List<Key>,
        val requests: List<Request>,
        val signatures: List<Signed>,
    )

    @Serializable
    private class Key(val id: String, @SerialName("public_key") val publicKey: String, val device: String)

    @Serializable
    private class Request(
        val id: String,
        val method: String,
        val path: String,
        val body: String,
        val device: String,
        val round: Long?,
        val counter: Long,
        val signed: String,
        val sha256: String,
    )

    @Serializable
    private class Signed(val id: String, val der: String, val raw: String, val header: String)

    private companion object {
        const val SIGNATURES = 1000
        val json = Json { ignoreUnknownKeys = true }

        fun bytes(base64: String): ByteArray = Base64.getDecoder().decode(base64)
    }
}
