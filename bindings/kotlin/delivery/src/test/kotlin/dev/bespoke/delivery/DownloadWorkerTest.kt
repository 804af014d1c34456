// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.delivery

import android.net.NetworkCapabilities
import android.os.Looper
import androidx.work.WorkManager
import java.io.File
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.runBlocking
import org.junit.After
import org.junit.Assert.assertEquals
import org.junit.Assert.assertFalse
import org.junit.Assert.assertNotNull
import org.junit.Assert.assertNull
import org.junit.Assert.assertThrows
import org.junit.Assert.assertTrue
import org.junit.Test
import org.junit.runner.RunWith
import org.robolectric.RobolectricTestRunner
import org.robolectric.RuntimeEnvironment
import org.robolectric.Shadows.shadowOf

/** Delivery by the real WorkManager. */
@RunWith(RobolectricTestRunner::class)
class DownloadWorkerTest {
    private val app get() = RuntimeEnvironment.getApplication() as TestApp
    private val server = ArchiveServer()
    private val download by lazy {
        BundleDownload(server.put("weights.zip", File(CHAT, "weights.zip")), server.put("method.zip", File(CHAT, "method.zip")))
    }

    @After
    fun leave() {
        server.close()
        WorkManager.getInstance(app).cancelAllWork().result.get()
        shadowOf(Looper.getMainLooper()).idle()
        Thread.sleep(100)
    }

    private fun status() = runBlocking { Delivery.status(app).first() }

    private fun ends(as_: DeliveryStatus) = app.await("$as_, now ${status()}") { status() == as_ }

    @Test
    fun `it waits for a network that is not metered and for room on the disk`() {
        assertEquals(DeliveryStatus.Off, status())
        Delivery.request(app, download)
        app.await("a system job") { app.jobs().isNotEmpty() }
        val job = app.jobs().single()
        assertTrue(job.requiredNetwork!!.hasCapability(NetworkCapabilities.NET_CAPABILITY_NOT_METERED))
        assertTrue(job.isRequireStorageNotLow)
        assertFalse(job.isRequireCharging)
        assertEquals(DeliveryStatus.Waiting, status())
        assertTrue(server.sent.isEmpty())
        assertNull(Delivery.bundle(app))
    }

    @Test
    fun `it says how far it is, and where the bundle lies`() {
        server.bytesPerSecond = 2_000_000
        Delivery.request(app, download)
        app.startJob()
        app.await("progress") { (status() as? DeliveryStatus.Running)?.at?.let { it.bytes in 1..it.of } == true }
        server.bytesPerSecond = null
        ends(DeliveryStatus.Done)
        val bundle = assertNotNullBundle()
        assertTrue(bundle.path.startsWith(app.noBackupFilesDir.path))
        assertEquals(setOf("bundle", "delivered.json"), bundle.parentFile!!.list()!!.toSet())
    }

    @Test
    fun `a connection that breaks is tried again, for the rest`() {
        server.cuts += listOf(1000, 0)
        Delivery.request(app, download)
        app.startJob()
        app.await("a first attempt") { status() == DeliveryStatus.Waiting && server.sent.size == 2 }
        app.later(seconds = 30)
        app.startJob()
        ends(DeliveryStatus.Done)
        assertEquals(listOf(0, 1000, 1000, 0), server.sent.map { it.from })
    }

    @Test
    fun `what is refused says why, and is not tried again`() {
        Delivery.request(app, download.copy(method = download.method.copy(sha256 = "0".repeat(64))))
        app.startJob()
        app.await("an end") { (status() as? DeliveryStatus.Failed)?.why?.contains("method.zip: got a file of another sha256") == true }
        app.later(seconds = 3600)
        assertEquals(1, server.sent.size)
    }

    @Test
    fun `deleted while it comes, nothing is left and nothing comes any more`() {
        server.bytesPerSecond = 200_000
        Delivery.request(app, download)
        app.startJob()
        app.await("progress") { server.sent.isNotEmpty() && (status() as? DeliveryStatus.Running)?.at != null }
        var deleted: Boolean? = null
        Thread { deleted = runBlocking { Delivery.delete(app) } }.start()
        app.await("deleted") { deleted != null }
        assertEquals(true, deleted)
        assertFalse(File(app.noBackupFilesDir, "bespoke-bundles/chat").exists())
        assertEquals(DeliveryStatus.Off, status())
        Thread.sleep(300)
        assertFalse(File(app.noBackupFilesDir, "bespoke-bundles/chat").exists())
    }

    @Test
    fun `what cannot be asked for is said at once`() {
        assertThrows(IllegalArgumentException::class.java) { download.copy(name = "../elsewhere") }
        assertThrows(IllegalArgumentException::class.java) { Delivery.bundle(app, "../elsewhere") }
        assertThrows(IllegalArgumentException::class.java) { download.weights.copy(url = "http://example.com/weights.zip") }
        assertThrows(IllegalArgumentException::class.java) { download.weights.copy(sha256 = "abc") }
    }

    private fun assertNotNullBundle(): File {
        assertNotNull(Delivery.bundle(app))
        return Delivery.bundle(app)!!
    }

    private companion object {
        val CHAT = File(checkNotNull(System.getProperty("bespoke.fixture")) { "run make test-kotlin" }, "archives/chat")
    }
}
