// SPDX-License-Identifier: Apache-2.0
package dev.bespoke

import java.io.File
import java.io.RandomAccessFile
import java.nio.file.Files
import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.assertThrows
import org.junit.jupiter.params.ParameterizedTest
import org.junit.jupiter.params.provider.ValueSource

/** A bundle within another file, as an APK has it among its assets: a descriptor, an offset and a size. */
class AssetTest {
    private val zip = File(System.getProperty("bespoke.fixture"), "archives/chat/bundle.zip")

    private fun <T> within(offset: Long, block: (BundleSource.Within, RandomAccessFile) -> T): T {
        val apk = Files.createTempFile("app", ".apk").toFile()
        try {
            RandomAccessFile(apk, "rw").use { file ->
                file.seek(offset)
                file.write(zip.readBytes())
                file.write(ByteArray(1000))  // what follows in an APK
                val descriptor = File("/proc/self/fd").listFiles()!!.first { it.canonicalPath == apk.canonicalPath }.name.toInt()
                return block(BundleSource.Within(descriptor, offset, zip.length()), file)
            }
        } finally {
            apk.delete()
        }
    }

    @ParameterizedTest
    @ValueSource(longs = [0, 4096, 16384])
    fun `it trains as the folder does also when the app has closed its file`(offset: Long) = within(offset) { bundle, file ->
        val state = Files.createTempDirectory("bespoke")
        runBlocking {
            PersonalModel.open(bundle, state.toString()).use { model ->
                file.close()
                Fixture.notes.forEachIndexed { number, note -> model.examples.add(Example.Text(note), "note-$number", mustKnow = true) }
                val report = model.train(Training(stop = { it.phase == Phase.STEP && it.step >= STEPS }))
                assertEquals(Fixture.python.losses.take(STEPS), report.losses)
            }
        }
        state.toFile().deleteRecursively()
        Unit
    }

    @Test
    fun `where the APK was not aligned it says so and what to do`() = within(offset = 4100) { bundle, _ ->
        val error = assertThrows<BundleError> { runBlocking { PersonalModel.open(bundle, "/tmp/never") } }
        assertEquals("the bundle at byte 4100 of a file", error.subject)
        assertTrue("zipalign" in error.nextStep) { error.toString() }
    }

    private companion object {
        const val STEPS = 5
    }
}
