// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.delivery

import dev.bespoke.BundleSource
import dev.bespoke.Example
import dev.bespoke.PersonalModel
import java.io.File
import java.nio.file.Files
import kotlinx.coroutines.runBlocking
import okhttp3.OkHttpClient
import org.junit.After
import org.junit.Assert.assertEquals
import org.junit.Assert.assertFalse
import org.junit.Assert.assertThrows
import org.junit.Assert.assertTrue
import org.junit.Test
import org.junit.runner.RunWith
import org.robolectric.RobolectricTestRunner

/** What is asked for, and what is installed, of two bundles with the same weights: `older`, and `chat` with another method. */
@RunWith(RobolectricTestRunner::class)
class DownloadInstalledTest {
    private val place: File = Files.createTempDirectory("delivered").toFile()
    private val folder = File(place, "chat")
    private val server = ArchiveServer()
    private val delivered get() = DeliveredBundle(folder, OkHttpClient())
    private val manifest get() = sha256(File(delivered.bundle, "manifest.json"))

    @After
    fun leave() {
        server.close()
        place.deleteRecursively()
    }

    private fun download(of: String, deltas: List<Delta> = emptyList(), pin: String? = null) = BundleDownload(
        server.put("$of/weights.zip", File(ARCHIVES, "$of/weights.zip")), server.put("$of/method.zip", File(ARCHIVES, "$of/method.zip")),
        deltas, pinSha256 = pin,
    )

    private fun bring(download: BundleDownload): List<String> {
        server.sent.clear()
        val told = mutableListOf<DeliveryProgress>()
        runBlocking { delivered.bring(download) { told += it } }
        assertTrue(told.all { it.bytes in 0..it.of })
        assertFalse("archives are gone", File(folder, "archives").exists())
        return server.asked()
    }

    private fun delta() = Delta(pinOf("older"), server.put("delta.zip", File(ARCHIVES, "delta/delta.zip")))

    /** It is a bundle: it opens, and takes an example. */
    private fun opens() = runBlocking {
        val state = File(place, "state-$manifest").path
        PersonalModel.open(BundleSource.At(delivered.bundle.path), state).use { it.examples.add(Example.Text("A dog.")) }
    }

    @Test
    fun `a first bundle takes both archives, and once it is there nothing is asked for`() {
        val download = download("chat", pin = pinOf("chat"))
        assertEquals(listOf("chat/method.zip", "chat/weights.zip"), bring(download))
        assertEquals(pinOf("chat"), manifest)
        opens()
        assertTrue(bring(download).isEmpty())
    }

    @Test
    fun `where only the method changed, the weights are not asked for`() {
        bring(download("older"))
        opens()
        assertEquals(listOf("chat/method.zip"), bring(download("chat")))
        assertEquals(pinOf("chat"), manifest)
        opens()
        assertEquals("back as well", listOf("older/method.zip"), bring(download("older")))
    }

    @Test
    fun `a delta goes over the bundle that it was made for, and the method over any other`() {
        bring(download("older"))
        val download = download("chat", listOf(delta()), pinOf("chat"))
        assertTrue(download.deltas.single().archive.bytes < download.method.bytes)
        assertEquals(listOf("delta.zip"), bring(download))
        assertEquals(pinOf("chat"), manifest)
        opens()
        assertEquals("not over itself", listOf("chat/method.zip"), bring(download.copy(deltas = emptyList())))
    }

    @Test
    fun `with other weights all of it comes`() {
        bring(download("older"))
        val installed = File(delivered.bundle, "manifest.json")
        val weight = sha256(File(delivered.bundle, "weights").listFiles()!!.first())
        installed.writeText(installed.readText().replace(weight, "0".repeat(64)))
        assertEquals(listOf("chat/method.zip", "chat/weights.zip"), bring(download("chat")))
        opens()
    }

    @Test
    fun `a bundle that was damaged on the device is mended`() {
        bring(download("older"))
        val weight = File(delivered.bundle, "weights").listFiles()!!.first()
        weight.writeBytes(weight.readBytes().also { it[it.size / 2] = (it[it.size / 2] + 1).toByte() })
        assertEquals(listOf("chat/method.zip", "chat/weights.zip"), bring(download("chat")))
        opens()
    }

    @Test
    fun `what is wrong replaces nothing, and the right one is taken afterwards`() {
        bring(download("older"))
        val chat = download("chat")
        val other = chat.copy(method = chat.method.copy(sha256 = "0".repeat(64)))
        assertThrows(DeliveryError::class.java) { bring(other) }
        assertThrows(dev.bespoke.BespokeError::class.java) { bring(chat.copy(pinSha256 = pinOf("older"))) }
        assertEquals(pinOf("older"), manifest)
        opens()
        bring(chat)
        assertEquals(pinOf("chat"), manifest)
    }

    @Test
    fun `archives that a killed process had whole are not asked for again`() {
        val download = download("chat")
        File(folder, "archives").mkdirs()
        File(ARCHIVES, "chat/method.zip").copyTo(File(folder, "archives/${download.method.sha256}.zip"))
        File(folder, "archives/${download.weights.sha256}.partial").writeBytes(File(ARCHIVES, "chat/weights.zip").readBytes().copyOf(1000))
        File(folder, "archives/${"1".repeat(64)}.partial").writeText("of a bundle that is not wanted any more")
        assertEquals(listOf("chat/weights.zip"), bring(download))
        assertEquals(1000, server.sent.single().from)
        opens()
    }

    @Test
    fun `deleted, nothing is left`() {
        bring(download("chat"))
        server.cuts += listOf(1000, 0)
        runCatching { bring(download("older")) }
        assertTrue(delivered.delete())
        assertFalse(folder.exists())
    }

    private companion object {
        val ARCHIVES = File(checkNotNull(System.getProperty("bespoke.fixture")) { "run make test-kotlin" }, "archives")

        /** Of the manifest as Python wrote it. */
        fun pinOf(bundle: String) = sha256(File(ARCHIVES.parentFile, "$bundle.bundle/manifest.json"))
    }
}
