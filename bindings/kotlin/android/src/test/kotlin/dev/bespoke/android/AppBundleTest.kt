// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.android

import android.util.AtomicFile
import java.nio.file.Files
import kotlinx.coroutines.runBlocking
import kotlinx.serialization.json.Json
import org.junit.Assert.assertEquals
import org.junit.Assert.assertThrows
import org.junit.Assert.assertTrue
import org.junit.Test
import org.junit.runner.RunWith
import org.robolectric.RobolectricTestRunner
import org.robolectric.RuntimeEnvironment

/** A bundle is code: one that is known by nothing is taken only where the app says so. */
@RunWith(RobolectricTestRunner::class)
class AppBundleTest {
    private val app get() = RuntimeEnvironment.getApplication() as TestApp
    private val signed by lazy { User(app).learning.bundle }

    private fun refused(make: () -> AppBundle) = assertThrows(IllegalArgumentException::class.java) { make() }.message!!

    @Test
    fun `a path with neither pin nor key is refused where it is written, and the error says what to do`() {
        val said = refused { AppBundle(path = "/data/chat.bundle") }
        for (word in listOf("/data/chat.bundle", "neither", "pinSha256", "publicKey", "requireAuthenticated = false")) assertTrue(said, word in said)
        assertEquals(said.replace("/data/chat.bundle", "chat.zip"), refused { AppBundle(asset = "chat.zip", requireAuthenticated = true) })
    }

    @Test
    fun `a path with one of them, a path that the app vouches for, and an asset are taken`() {
        assertTrue(AppBundle(path = "/data/chat.bundle", pinSha256 = "0".repeat(64)).requireAuthenticated)
        assertTrue(signed.requireAuthenticated)
        AppBundle(path = "/data/chat.bundle", requireAuthenticated = false)
        AppBundle(asset = "chat.zip")
    }

    @Test
    fun `the open model says what its bundle is known by`() {
        fun authenticated(bundle: AppBundle): String {
            val learning = User(app).learning.copy(bundle = bundle)
            return runBlocking { Personalization.open(app, learning).use { it.authenticated } }
        }
        assertEquals("signature", authenticated(signed))
        assertEquals("none", authenticated(AppBundle(path = signed.path, requireAuthenticated = false)))
    }

    @Test
    fun `what is kept with the work is what was given`() {
        val bundles = listOf(signed, AppBundle(asset = "chat.zip"), AppBundle(path = "/data/chat.bundle", requireAuthenticated = false))
        for (bundle in bundles) assertEquals(bundle, Json.decodeFromString(AppBundle.serializer(), Json.encodeToString(AppBundle.serializer(), bundle)))
    }

    @Test
    fun `a journal with a bundle that is refused today is as none`() {
        val file = Files.createTempFile("training", ".json").toFile()
        file.writeText("""{"crashes":1,"scheduled":{"bundle":{"path":"/data/chat.bundle"}}}""")
        assertEquals(Kept(), Journal(AtomicFile(file)).read())
        file.writeText("""{"crashes":1}""")
        assertEquals(Kept(crashes = 1), Journal(AtomicFile(file)).read())
        assertTrue(file.delete())
    }
}
