// SPDX-License-Identifier: Apache-2.0
package dev.bespoke

import java.nio.file.Files
import java.security.MessageDigest
import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.assertThrows

/** An app knows its bundle by who signed it, or by its manifest's hash; another one is not opened and leaves no state. */
class TrustTest {
    private val pin = MessageDigest.getInstance("SHA-256").digest(Fixture.manifest.readBytes()).joinToString("") { "%02x".format(it) }

    private fun open(trust: Trust) {
        val folder = Files.createTempDirectory("bespoke")
        try {
            runBlocking { PersonalModel.open(Fixture.bundle, folder.resolve("alice").toString(), Options(trust)).close() }
        } catch (problem: BespokeError) {
            assertTrue(folder.toFile().list()!!.isEmpty())
            throw problem
        } finally {
            folder.toFile().deleteRecursively()
        }
    }

    @Test
    fun `the key of the signer opens it in either case of its digits`() {
        open(Trust(publicKey = Fixture.signer, requireAuthenticated = true))
        open(Trust(publicKey = Fixture.signer.uppercase(), requireAuthenticated = true))
    }

    @Test
    fun `the hash of the manifest opens it`() = open(Trust(pinSha256 = pin, requireAuthenticated = true))

    @Test
    fun `another key and another hash do not`() {
        val other = Fixture.signer.replaceFirstChar { if (it == '0') '1' else '0' }
        assertThrows<SignatureError> { open(Trust(publicKey = other)) }
        assertThrows<SignatureError> { open(Trust(pinSha256 = pin.reversed())) }
    }

    @Test
    fun `where one of them is required none will not do`() {
        assertThrows<SignatureError> { open(Trust(requireAuthenticated = true)) }
    }

    @Test
    fun `what is no key is said at once`() {
        val error = assertThrows<IllegalArgumentException> { Trust(publicKey = Fixture.signer.dropLast(1)) }
        assertTrue("64 hexadecimal digits" in error.message!!)
    }
}
