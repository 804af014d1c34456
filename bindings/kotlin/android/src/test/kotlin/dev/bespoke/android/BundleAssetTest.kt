// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.android

import android.content.Context
import android.content.ContextWrapper
import android.content.res.ApkAssets
import android.content.res.AssetManager
import dev.bespoke.Example
import dev.bespoke.PersonalModel
import dev.bespoke.Phase
import dev.bespoke.Training
import java.io.ByteArrayInputStream
import java.io.File
import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.nio.file.Files
import java.util.zip.CRC32
import java.util.zip.ZipEntry
import java.util.zip.ZipOutputStream
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.runBlocking
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.double
import kotlinx.serialization.json.jsonArray
import kotlinx.serialization.json.jsonObject
import kotlinx.serialization.json.jsonPrimitive
import org.junit.After
import org.junit.Assert.assertArrayEquals
import org.junit.Assert.assertEquals
import org.junit.Assert.assertFalse
import org.junit.Assert.assertThrows
import org.junit.Assert.assertTrue
import org.junit.Test
import org.junit.runner.RunWith
import org.robolectric.RobolectricTestRunner
import org.robolectric.RuntimeEnvironment
import org.robolectric.Shadows.shadowOf

/** A bundle among the assets of an APK: in place where the core can map it, else as one copy. */
@RunWith(RobolectricTestRunner::class)
class BundleAssetTest {
    private val app = RuntimeEnvironment.getApplication() as TestApp
    private val folder = File(app.noBackupFilesDir, "bespoke/assets.copied")
    private val work = Files.createTempDirectory("apk").toFile()
    private val copies get() = folder.walk().filter { it.isFile && it.name != "lock" }.toList()

    @After
    fun leave() {
        work.deleteRecursively()
    }

    @Test
    fun `at a multiple of 64 it is read in place and trains as the folder does`() {
        assertEquals(python.take(SOME), losses(Installed(apk(offset = 4096))))
        assertFalse("nothing was copied", folder.exists())
    }

    @Test
    fun `elsewhere it is copied once and trains with the same losses`() {
        val installed = Installed(apk(offset = 4100))
        assertEquals(python.take(SOME), losses(installed))
        val copy = copies.single()
        assertArrayEquals(zip.readBytes(), copy.readBytes())
        val made = Files.readAttributes(copy.toPath(), "unix:ino,ctime")
        assertEquals(python.take(SOME), losses(installed))
        assertEquals("no second copy", made, Files.readAttributes(copies.single().toPath(), "unix:ino,ctime"))
    }

    @Test
    fun `compressed it is copied once and trains with the same losses`() {
        val apk = apk(offset = null)
        assertTrue("it is smaller so", apk.length() < zip.length())
        assertEquals(python.take(SOME), losses(Installed(apk)))
        assertArrayEquals(zip.readBytes(), copies.single().readBytes())
    }

    @Test
    fun `the training process opens it by the same copy`() {
        val installed = Installed(apk(offset = 4100))
        runBlocking {
            Personalization.open(installed, learning).use { model ->
                val order = SliceOrder(learning.bundle, learning.name, 1.0, null, PlanLadder(), isForeground = false)
                val end = SliceRunner(installed, Sensors(installed), order) {}.run()
                assertEquals("it has no example yet", SliceEnd(rungs = 4, pause = Pause.NO_EXAMPLES), end)
                assertEquals(0, model.examples.count())
            }
        }
        assertEquals(zip.length(), copies.single().length())
    }

    @Test
    fun `an update of the app makes another copy in the place of the one before`() {
        val first = Installed(apk(offset = 4100))
        opened(first) {}
        val before = copies.single()
        File(folder, "${updated() - 1}.part").writeText("of a process that was killed")
        updated(later = 1000)
        opened(Installed(apk(offset = null))) {}
        assertFalse(before.exists())
        assertEquals(listOf("bundle.zip"), copies.map { it.name })
        updated(later = 1000)
        opened(Installed(apk(offset = 4096))) {}
        assertEquals("none is needed now", emptyList<File>(), copies)
    }

    @Test
    fun `a model goes on with the copy that an update has deleted`() {
        opened(Installed(apk(offset = 4100))) { model ->
            updated(later = 1000)
            AssetCopies(app).deleteOlder()
            assertEquals(emptyList<File>(), copies)
            addNotes(model)
            assertEquals(python.take(SOME), trained(model))
        }
    }

    @Test
    fun `many at once make one copy`() {
        var reads = 0
        val found = runBlocking(Dispatchers.IO) {
            List(8) { async { AssetCopies(app).of("a.zip") { reads++; ByteArrayInputStream(ByteArray(1_000_000)) } } }.awaitAll()
        }
        assertEquals(1, reads)
        assertEquals(copies, found.distinct())
    }

    @Test
    fun `a full disk leaves nothing and the error says what to do`() {
        folder.mkdirs()
        // Where the copy is written until it is whole: the kernel has no room there, ever.
        Files.createSymbolicLink(File(folder, "${updated()}.part").toPath(), File("/dev/full").toPath())
        val installed = Installed(apk(offset = 4100))
        val said = assertThrows(IllegalStateException::class.java) { opened(installed) {} }.message!!
        assertTrue(said, said.startsWith("The copy of the asset 'bundle.zip': got 'No space left on device' with "))
        assertTrue(said, said.endsWith("Make room on the device, or store the asset at a multiple of 64 bytes, where it needs no copy."))
        assertEquals(emptyList<File>(), copies)
        opened(installed) {}
        assertEquals(zip.length(), copies.single().length())
    }

    @Test
    fun `what is cut while it is copied has no name and is made anew`() {
        val whole = zip.readBytes()
        val cut = object : ByteArrayInputStream(whole) {
            override fun read(into: ByteArray, offset: Int, length: Int): Int =
                if (pos < whole.size / 2) super.read(into, offset, length / 4) else throw CutOff()
        }
        runBlocking {
            assertTrue(runCatching { AssetCopies(app).of("bundle.zip") { cut } }.exceptionOrNull() is CutOff)
            assertEquals(emptyList<File>(), copies)
            assertArrayEquals(whole, AssetCopies(app).of("bundle.zip") { zip.inputStream() }.readBytes())
        }
    }

    @Test
    fun `an asset that is not there is said to be so`() {
        val bundle = AppBundle(asset = "models/chat.zip")
        val said = assertThrows(IllegalStateException::class.java) {
            runBlocking { bundle.opened(Installed(apk(offset = 4096)), "/tmp/never") }
        }
        assertEquals(
            "The asset 'models/chat.zip': got no such file in the app; expected a bundle as one zip. " +
                "Add it to the app's assets, or name another.",
            said.message,
        )
    }

    /** The app as it is with this APK. */
    private inner class Installed(apk: File) : ContextWrapper(app) {
        private val assets = AssetManager.Builder().addApkAssets(ApkAssets.loadFromPath(apk.path)).build()

        override fun getAssets(): AssetManager = assets
    }

    private class CutOff : RuntimeException()

    /** An APK with the bundle in it: stored so that it begins at this byte, or compressed. */
    private fun apk(offset: Int?): File = File.createTempFile("app", ".apk", work).also { file ->
        val entry = ZipEntry("assets/bundle.zip")
        if (offset != null) {
            entry.method = ZipEntry.STORED
            entry.size = zip.length()
            entry.crc = CRC32().apply { update(zip.readBytes()) }.value
            val padding = ByteBuffer.allocate(offset - LOCAL_HEADER - entry.name.length).order(ByteOrder.LITTLE_ENDIAN)
            entry.extra = padding.putShort(PADDING).putShort((padding.capacity() - 4).toShort()).array()
        }
        ZipOutputStream(file.outputStream()).use { out ->
            out.putNextEntry(entry)
            zip.inputStream().use { it.copyTo(out) }
        }
    }

    /** When the system installed this version of the app; `later`: another one, so many ms after that. */
    private fun updated(later: Long = 0): Long {
        val info = shadowOf(app.packageManager).getInternalMutablePackageInfo(app.packageName)
        info.lastUpdateTime += later
        return info.lastUpdateTime
    }

    private fun opened(context: Context, block: suspend (PersonalModel) -> Unit) =
        runBlocking { Personalization.open(context, learning).use { block(it) } }

    private fun losses(context: Context): List<Double?> {
        var losses = emptyList<Double?>()
        opened(context) { model ->
            addNotes(model)
            losses = trained(model)
        }
        assertTrue(Place(app, learning.name).delete())
        return losses
    }

    private suspend fun addNotes(model: PersonalModel) =
        notes.forEachIndexed { number, note -> model.examples.add(Example.Text(note), "note-$number", mustKnow = true) }

    private suspend fun trained(model: PersonalModel) = model.train(Training(stop = { it.phase == Phase.STEP && it.step >= SOME })).losses

    private companion object {
        const val SOME = 5
        const val LOCAL_HEADER = 30
        const val PADDING = 0xD935.toShort()  // as tools/align.py writes it
        val fixture = File(checkNotNull(System.getProperty("bespoke.fixture")) { "run make test-kotlin" })
        val zip = File(fixture, "archives/chat/bundle.zip")
        val learning = Learning(AppBundle(asset = "bundle.zip"))
        val notes: List<String> by lazy { Json.decodeFromString(File(fixture, "notes.json").readText()) }
        val python: List<Double> by lazy {
            val said = Json.parseToJsonElement(File(fixture, "python.json").readText()).jsonObject
            said["losses"]!!.jsonArray.map { it.jsonPrimitive.double }
        }
    }
}
