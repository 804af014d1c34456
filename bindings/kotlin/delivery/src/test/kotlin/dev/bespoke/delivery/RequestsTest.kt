// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.delivery

import java.io.File
import java.nio.file.Files
import java.util.concurrent.TimeUnit
import kotlin.random.Random
import org.junit.After
import org.junit.Assert.assertEquals
import org.junit.Assert.assertFalse
import org.junit.Assert.assertNull
import org.junit.Assert.assertThrows
import org.junit.Assert.assertTrue
import org.junit.Test

/** The files of requests, in a process of their own that is killed while it writes them. */
class RequestsTest {
    private val place: File = Files.createTempDirectory("requested").toFile()
    private val folder = File(place, "requests")
    private val whole get() = folder.listFiles().orEmpty().filter { it.name.endsWith(".json") }

    @After
    fun leave() {
        place.deleteRecursively()
    }

    @Test
    fun `killed at any time, each file that has its name is what was asked for`() {
        val requests = Requests(folder)
        var seen = 0
        repeat(KILLS) {
            val child = ProcessBuilder(
                "${System.getProperty("java.home")}/bin/java", "-XX:TieredStopAtLevel=1", "-cp", System.getProperty("java.class.path"),
                KeepingProcess::class.java.name, folder.path, "$it",
            ).redirectError(ProcessBuilder.Redirect.INHERIT).start()
            assertEquals('.'.code, child.inputStream.read())  // it has kept one
            assertFalse("it ended", child.waitFor(Random(it).nextLong(0, 200), TimeUnit.MILLISECONDS))
            child.destroyForcibly().waitFor()
            for (file in whole) assertEquals(DELTAS, requests.read(file.nameWithoutExtension)!!.deltas.size)
            seen += whole.size
            val next = requests.keep(request(-1))
            requests.keepOnly(next)
            assertEquals(listOf("$next.json"), folder.list()!!.toList())
        }
        assertTrue("$seen files", seen >= KILLS)
    }

    @Test
    fun `files go with what they are for, and not with what was asked for since`() {
        val requests = Requests(folder)
        val (older, newer) = listOf(request(1), request(2)).map(requests::keep)
        requests.keepOnly(older)  // WorkManager noted the older one when the newer one was asked for
        assertEquals(setOf("$older.json", "$newer.json"), folder.list()!!.toSet())
        requests.keepOnly(newer)
        assertNull(requests.read(older))
        assertEquals(request(2), requests.read(newer))
        requests.forget()
        requests.keepOnly(null)
        assertFalse(folder.exists())
        requests.delete(requests.keep(request(1)))
        assertFalse(folder.exists())
    }

    @Test
    fun `a request that cannot be kept is said at once`() {
        folder.writeText("a file where the folder is to be")
        val error = assertThrows(DeliveryError::class.java) { Requests(folder).keep(request(1)) }
        assertTrue(error.message!!, folder.path in error.message!!)
    }

    companion object {
        private const val KILLS = 5
        private const val DELTAS = 2_000

        /** Of hundreds of kilobytes, so that it takes a while to write. */
        fun request(number: Int): BundleDownload {
            val archive = Archive("https://example.com/$number.zip", "%064x".format(number and 0xffff), 1)
            return BundleDownload(archive, archive, List(DELTAS) { Delta("%064x".format(it), archive) })
        }
    }
}

/** Keeps one request after the other, until it is killed. */
object KeepingProcess {
    @JvmStatic
    fun main(arguments: Array<String>) {
        val (folder, first) = arguments
        val requests = Requests(File(folder))
        generateSequence(first.toInt() * 1000) { it + 1 }.forEach {
            requests.keepOnly(requests.keep(RequestsTest.request(it)))
            print('.')
            System.out.flush()
        }
    }
}
