// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.delivery

import android.os.Looper
import androidx.work.WorkManager
import java.io.File
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.runBlocking
import org.junit.After
import org.junit.Assert.assertEquals
import org.junit.Assert.assertFalse
import org.junit.Assert.assertTrue
import org.junit.Test
import org.junit.runner.RunWith
import org.robolectric.RobolectricTestRunner
import org.robolectric.RuntimeEnvironment
import org.robolectric.Shadows.shadowOf

/** What was asked for is kept in a file until it has come, of any size, whenever the process is killed; by the real WorkManager. */
@RunWith(RobolectricTestRunner::class)
class DownloadRequestTest {
    private val app get() = RuntimeEnvironment.getApplication() as TestApp
    private val server = ArchiveServer()
    private val folder by lazy { File(app.noBackupFilesDir, "bespoke-bundles/chat") }
    private val kept get() = File(folder, "requests").listFiles().orEmpty().toList()
    private val chat by lazy { download("chat") }

    /** Of an app that has been updated for a long time: it knows a delta from each of many versions. */
    private val large by lazy {
        chat.copy(deltas = List(DELTAS) { Delta("%064x".format(it), chat.method.copy(url = server.url("deltas/from-version-$it/delta.zip"))) })
    }

    @After
    fun leave() {
        server.close()
        WorkManager.getInstance(app).cancelAllWork().result.get()
        shadowOf(Looper.getMainLooper()).idle()
        Thread.sleep(100)
    }

    private fun download(of: String) =
        BundleDownload(server.put("$of/weights.zip", File(ARCHIVES, "$of/weights.zip")), server.put("$of/method.zip", File(ARCHIVES, "$of/method.zip")))

    private fun status() = runBlocking { Delivery.status(app).first() }

    private fun ends(as_: DeliveryStatus) = app.await("$as_, now ${status()}") { status() == as_ }

    private fun failsWith(words: String) = app.await("$words, now ${status()}") { (status() as? DeliveryStatus.Failed)?.why?.contains(words) == true }

    private fun delivered(of: String) =
        assertEquals(File(ARCHIVES.parentFile, "$of.bundle/manifest.json").readText(), File(folder, "bundle/manifest.json").readText())

    @Test
    fun `a request that is larger than what WorkManager keeps is delivered, and leaves no file`() {
        Delivery.request(app, large)
        app.await("its file alone") { kept.size == 1 }
        assertTrue("${kept.single().length()} bytes", kept.single().length() > 10_240)
        app.startJob()
        ends(DeliveryStatus.Done)
        delivered("chat")
        assertEquals(setOf("bundle", "delivered.json"), folder.list()!!.toSet())
    }

    @Test
    fun `killed before WorkManager had the new request, the one before is delivered, and the next one takes the files`() {
        Delivery.request(app, download("older"))
        app.await("a system job") { app.jobs().isNotEmpty() }
        Delivery.of(app, "chat").requests.keep(large)  // and here the process is killed
        app.startJob()
        ends(DeliveryStatus.Done)
        delivered("older")
        assertEquals(1, kept.size)
        Delivery.request(app, chat)
        app.startJob()
        ends(DeliveryStatus.Done)
        delivered("chat")
        assertEquals(emptyList<File>(), kept)
    }

    @Test
    fun `killed when it was there and before WorkManager noted it, it is there and nothing is asked for`() {
        Delivery.request(app, large)
        app.startJob()
        ends(DeliveryStatus.Done)
        server.sent.clear()
        Delivery.request(app, large)
        app.await("a system job and its file") { app.jobs().isNotEmpty() && kept.size == 1 }
        kept.single().delete()  // as the worker does at its end
        app.startJob()
        ends(DeliveryStatus.Done)
        assertTrue(server.sent.isEmpty())
    }

    @Test
    fun `a torn file is refused, the bundle before stays, and asking again helps`() {
        Delivery.request(app, download("older"))
        app.startJob()
        ends(DeliveryStatus.Done)
        val harm = listOf<(ByteArray) -> ByteArray>({ it.copyOf(it.size / 2) }, { ByteArray(it.size) }, { it.also { bytes -> bytes[40] = 'x'.code.toByte() } })
        for (torn in harm) {
            Delivery.request(app, large)
            app.await("a system job and its file") { app.jobs().isNotEmpty() && kept.size == 1 }
            kept.single().run { writeBytes(torn(readBytes())) }
            server.sent.clear()
            app.startJob()
            failsWith("of another sha256")
            assertTrue(server.sent.isEmpty())
            delivered("older")
        }
        Delivery.request(app, large)
        app.startJob()
        ends(DeliveryStatus.Done)
        delivered("chat")
    }

    @Test
    fun `a file that is gone is said to be gone`() {
        Delivery.request(app, chat)
        app.await("a system job and its file") { app.jobs().isNotEmpty() && kept.size == 1 }
        kept.single().delete()
        app.startJob()
        failsWith("no file")
    }

    @Test
    fun `another request takes the place of the file, and cancelling and deleting leave none`() {
        for (download in listOf(large, chat, large, chat)) {
            Delivery.request(app, download)
            app.await("its file alone") { kept.size == 1 && kept.single().name == "${sha256(kept.single())}.json" }
        }
        assertTrue(kept.single().length() < 10_240)
        Delivery.cancel(app)
        app.await("no file") { kept.isEmpty() }
        Delivery.request(app, large)
        var deleted = false
        Thread { deleted = runBlocking { Delivery.delete(app) } }.start()
        app.await("deleted") { deleted }
        assertFalse(folder.exists())
    }

    @Test
    fun `a refusal of very many words is told all the same`() {
        val endless = server.url("x".repeat(20_000))
        Delivery.request(app, chat.copy(method = chat.method.copy(url = endless)))
        app.startJob()
        failsWith(endless.take(100))
    }

    private companion object {
        const val DELTAS = 100
        val ARCHIVES = File(checkNotNull(System.getProperty("bespoke.fixture")) { "run make test-kotlin" }, "archives")
    }
}
