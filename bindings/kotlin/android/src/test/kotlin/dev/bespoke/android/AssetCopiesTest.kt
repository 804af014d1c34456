// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.android

import java.io.File
import java.io.InputStream
import java.nio.file.Files
import java.nio.file.Path
import java.util.concurrent.CountDownLatch
import java.util.concurrent.TimeUnit
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.delay
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withContext
import org.junit.jupiter.api.AfterEach
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

/** Two processes that want the same copy, as the app's and the training's do: real ones, one of them slow. */
class AssetCopiesTest {
    private val folder = Files.createTempDirectory("copies").toFile()
    private val copies = AssetCopies(folder, VERSION)
    private val whole = File(folder, "$VERSION/$ASSET")

    @AfterEach
    fun leave() {
        folder.deleteRecursively()
    }

    @Test
    fun `who comes second waits and takes the copy of the first`() = runBlocking {
        val first = Child(folder)
        first.copies()
        val second = async(Dispatchers.IO) { copies.of(ASSET) { error("a second copy") } }
        delay(200)
        assertFalse(second.isCompleted || whole.exists())
        first.goesOn()
        assertEquals(whole, second.await())
        assertEquals(SIZE, whole.length())
        assertEquals(0, first.ended())
        assertEquals(listOf("$VERSION", "lock"), folder.list()!!.sorted())
    }

    @Test
    fun `where the first is killed the second makes it anew`() = runBlocking {
        val first = Child(folder)
        first.copies()
        val second = async(Dispatchers.IO) { copies.of(ASSET) { ByteArray(SIZE.toInt()) { 1 }.inputStream() } }
        delay(200)
        assertFalse(second.isCompleted || whole.exists())
        assertTrue(File(folder, "$VERSION.part").length() > 0, "it was killed in the middle")
        first.killed()
        assertTrue(second.await().readBytes().all { it == 1.toByte() })
        assertEquals(SIZE, whole.length())
        assertEquals(listOf("$VERSION", "lock"), folder.list()!!.sorted())
    }

    @Test
    fun `who is cancelled neither waits nor leaves a part`() = runBlocking {
        val first = Child(folder)
        first.copies()
        val second = launch(Dispatchers.IO) { copies.of(ASSET) { error("a second copy") } }
        delay(200)
        second.cancelAndJoin()
        first.killed()
        val (atHalf, wasCancelled) = List(2) { CountDownLatch(1) }
        val third = launch(Dispatchers.IO) { copies.of(ASSET) { Slow { atHalf.countDown(); wasCancelled.await() } } }
        withContext(Dispatchers.IO) { atHalf.await() }
        third.cancel()
        wasCancelled.countDown()
        third.join()
        assertEquals(listOf("$VERSION", "lock"), folder.list()!!.sorted())
        assertFalse(whole.exists())
    }

    /** Zeros, which wait in the middle. */
    private class Slow(private val atHalf: () -> Unit) : InputStream() {
        private var given = 0L

        override fun read(): Int = error("not byte by byte")

        override fun read(into: ByteArray, offset: Int, length: Int): Int {
            if (given == SIZE) return -1
            if (given == SIZE / 2) atHalf()
            val count = minOf(length.toLong(), CHUNK).toInt()
            into.fill(0, offset, offset + count)
            given += count
            return count
        }
    }

    /** A JVM that copies half, says so, and goes on when it is told to. */
    private class Child(folder: File) {
        private val process = ProcessBuilder(
            Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-cp", System.getProperty("java.class.path"), Child::class.java.name, folder.path,
        ).redirectError(ProcessBuilder.Redirect.INHERIT).start()

        fun copies() = assertEquals(HALF, process.inputStream.bufferedReader().readLine())

        fun goesOn() = process.outputStream.run { write('\n'.code); flush() }

        fun killed() {
            process.destroyForcibly()
            assertEquals(128 + SIGKILL, ended())
        }

        fun ended(): Int {
            assertTrue(process.waitFor(60, TimeUnit.SECONDS))
            return process.exitValue()
        }

        companion object {
            @JvmStatic
            fun main(arguments: Array<String>) = runBlocking {
                AssetCopies(File(arguments.single()), VERSION).of(ASSET) {
                    Slow {
                        println(HALF)
                        System.`in`.read()
                    }
                }
                Unit
            }
        }
    }

    private companion object {
        const val VERSION = 1_770_000_000_000L
        const val ASSET = "models/chat.zip"
        const val SIZE = 1_000_000L
        const val CHUNK = 50_000L
        const val HALF = "half"
        const val SIGKILL = 9
    }
}
