// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.delivery

import java.io.File
import java.io.IOException
import java.nio.file.Files
import kotlin.random.Random
import kotlinx.coroutines.delay
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import okhttp3.OkHttpClient
import org.junit.After
import org.junit.Assert.assertArrayEquals
import org.junit.Assert.assertEquals
import org.junit.Assert.assertFalse
import org.junit.Assert.assertThrows
import org.junit.Assert.assertTrue
import org.junit.Test

/** One archive, over connections that break. */
class DownloadResumedTest {
    private val server = ArchiveServer()
    private val folder: File = Files.createTempDirectory("archives").toFile()
    private val bytes = Random(5).nextBytes(300_000)
    private val archive = server.put("weights.zip", bytes)
    private val left get() = folder.list()!!.toSet()

    @After
    fun leave() {
        server.close()
        folder.deleteRecursively()
    }

    private fun fetch(of: Archive = archive, told: (Long) -> Unit = {}): File = runBlocking {
        ResumedFile(folder, of, OkHttpClient()).fetch(told)
    }

    private fun fetched(of: Archive = archive) = assertArrayEquals(bytes, fetch(of).readBytes())

    @Test
    fun `cut at twenty random bytes, every byte is sent once`() {
        val places = List(CUTS) { Random(it).nextInt(1, bytes.size) }.sorted()
        server.cuts += places.zipWithNext { one, next -> next - one }.let { listOf(places.first()) + it }.filter { it > 0 }
        val told = mutableListOf<Long>()
        assertArrayEquals(bytes, fetch { told += it }.readBytes())
        assertEquals(places.distinct().size + 1, server.sent.size)
        assertEquals(bytes.size, server.sent.sumOf { it.bytes })
        assertEquals(listOf(0) + places.distinct(), server.sent.map { it.from })
        assertEquals(told.sorted(), told)
        assertEquals(setOf("${archive.sha256}.zip"), left)
    }

    @Test
    fun `a connection that brings nothing is left for later, and what came is kept`() {
        server.cuts += listOf(1000, 0)
        assertThrows(IOException::class.java) { fetch() }
        assertEquals(1000, File(folder, "${archive.sha256}.partial").length())
        fetched()
        assertEquals(listOf(0, 1000, 1000), server.sent.map { it.from })
    }

    @Test
    fun `what is whole is not asked for again`() {
        fetched()
        fetched()
        assertEquals(1, server.sent.size)
    }

    @Test
    fun `a server without ranges sends all of it again`() {
        server.takesRanges = false
        server.cuts += 1000
        fetched()
        assertEquals(listOf(1000, bytes.size), server.sent.map { it.bytes })
    }

    @Test
    fun `without an ETag the rest is asked for all the same`() {
        for (none in listOf(null, "W/\"weak\"")) {
            server.etag = none
            server.cuts += 1000
            fetched()
            assertEquals(listOf(0, 1000), server.sent.takeLast(2).map { it.from })
            folder.listFiles()!!.forEach { it.delete() }
        }
    }

    @Test
    fun `a file that changed on the server comes from its first byte`() {
        val newer = Random(6).nextBytes(bytes.size)
        server.put("weights.zip", newer)
        server.cuts += listOf(1000, 0)
        assertThrows(IOException::class.java) { fetch() }
        server.put("weights.zip", bytes)
        server.etag = "\"second\""
        fetched()
        assertEquals(listOf(0, 1000, 0), server.sent.map { it.from })  // the server saw by the ETag that no rest would do
    }

    @Test
    fun `and so does one that changed without a sign of it, once the hash says so`() {
        server.etag = null
        server.put("weights.zip", Random(6).nextBytes(bytes.size))
        server.cuts += listOf(1000, 0)
        assertThrows(IOException::class.java) { fetch() }
        server.put("weights.zip", bytes)
        fetched()
        assertEquals(listOf(1000, 0), server.sent.takeLast(2).map { it.from })
    }

    @Test
    fun `a partial file longer than the archive is thrown away`() {
        File(folder, "${archive.sha256}.partial").writeBytes(ByteArray(bytes.size + 1))
        fetched()
        assertEquals(listOf(0), server.sent.map { it.from })
    }

    @Test
    fun `one that was whole before its name was given is not asked for`() {
        File(folder, "${archive.sha256}.partial").writeBytes(bytes)
        fetched()
        assertTrue(server.sent.isEmpty())
    }

    @Test
    fun `another hash is refused, and nothing of it stays`() {
        val wrong = archive.copy(sha256 = "0".repeat(64))
        val error = assertThrows(DeliveryError::class.java) { fetch(wrong) }
        assertEquals(listOf(archive.url, "a file of another sha256", wrong.sha256), listOf(error.subject, error.got, error.expected))
        assertTrue(left.isEmpty())
        assertEquals(1, server.sent.size)
    }

    @Test
    fun `another size is refused before a byte is taken`() {
        val error = assertThrows(DeliveryError::class.java) { fetch(archive.copy(bytes = 10)) }
        assertTrue(error.message!!, "300000" in error.got)
        assertTrue(left.isEmpty())
    }

    @Test
    fun `answers that later ones may mend are IOExceptions, the others are refusals`() {
        for (status in listOf(500, 503, 429, 408)) {
            server.status = status
            assertThrows("$status", IOException::class.java) { fetch() }
        }
        server.status = 410
        assertThrows(DeliveryError::class.java) { fetch() }
        assertThrows(DeliveryError::class.java) { fetch(archive.copy(url = server.url("elsewhere"))) }
    }

    @Test
    fun `who cancels finds no one writing any more, and goes on later`() = runBlocking {
        server.bytesPerSecond = 200_000
        val download = launch { ResumedFile(folder, archive, OkHttpClient()).fetch {} }
        val partial = File(folder, "${archive.sha256}.partial")
        while (partial.length() == 0L) delay(5)
        download.cancel()
        download.join()
        val size = partial.length()
        delay(300)
        assertEquals(size, partial.length())
        assertTrue(size < bytes.size)
        server.bytesPerSecond = null
        assertArrayEquals(bytes, ResumedFile(folder, archive, OkHttpClient()).fetch {}.readBytes())
        assertEquals(size.toInt(), server.sent.last().from)
    }

    @Test
    fun `killed while it comes, it goes on where it stood`() {
        server.bytesPerSecond = 400_000
        repeat(KILLS) {
            val child = ProcessBuilder(
                "${System.getProperty("java.home")}/bin/java", "-XX:TieredStopAtLevel=1", "-cp", System.getProperty("java.class.path"),
                FetchingProcess::class.java.name, folder.path, archive.url, archive.sha256, "${archive.bytes}",
            ).inheritIO().start()
            val partial = File(folder, "${archive.sha256}.partial")
            val wanted = partial.length() + Random(it).nextInt(1, bytes.size / (2 * KILLS))
            while (partial.length() < wanted) assertFalse("it ended", child.waitFor(2, java.util.concurrent.TimeUnit.MILLISECONDS))
            child.destroyForcibly().waitFor()
        }
        val partial = File(folder, "${archive.sha256}.partial").length().toInt()
        assertTrue(partial in 1 until bytes.size)
        server.bytesPerSecond = null
        fetched()
        assertEquals(partial, server.sent.last().from)
        assertEquals(KILLS + 1, server.sent.size)
    }

    private companion object {
        const val CUTS = 20
        const val KILLS = 3
    }
}

/** One archive in a process of its own, to be killed. */
object FetchingProcess {
    @JvmStatic
    fun main(arguments: Array<String>) {
        val (folder, url, sha256, bytes) = arguments
        runBlocking { ResumedFile(File(folder), Archive(url, sha256, bytes.toLong()), OkHttpClient()).fetch {} }
    }
}
