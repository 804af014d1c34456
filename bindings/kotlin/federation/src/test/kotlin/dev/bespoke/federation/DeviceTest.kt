// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.federation

import java.io.File
import java.nio.file.Files
import java.nio.file.Path
import org.junit.jupiter.api.AfterEach
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNotEquals
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

/** The counter of requests over processes, and what belongs together. */
class DeviceTest {
    private val place: File = Files.createTempDirectory("device").toFile()
    private val user = User(place)

    @AfterEach
    fun leave() {
        place.deleteRecursively()
    }

    @Test
    fun `counters rise across processes`() {
        val started = List(PROCESSES) {
            ProcessBuilder(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-Xmx64m", "-XX:TieredStopAtLevel=1",
                "-Dbespoke.fixture=${System.getProperty("bespoke.fixture")}", "-cp", System.getProperty("java.class.path"),
                SigningProcess::class.java.name, place.path,
            ).redirectError(ProcessBuilder.Redirect.INHERIT).start()
        }
        val said = started.flatMap { process -> process.inputStream.bufferedReader().readLines().map { it.split(' ') } }
        assertEquals(1, said.map { it[0] }.toSet().size)
        assertEquals((1L..PROCESSES * EACH).toList(), said.map { it[1].toLong() }.sorted())
    }

    @Test
    fun `a counter that was used is on the disk before its signature is there`() {
        val sees = object : SigningKey by user.key {
            override fun sign(message: ByteArray): ByteArray {
                assertTrue("\"counter\":1" in user.record.readText())
                return user.key.sign(message)
            }
        }
        assertEquals(1L, Device(sees, user.record).sign("GET", "/", ByteArray(0), null).counter)
    }

    @Test
    fun `a file of another key, or of nothing that can be read, is replaced`() {
        val first = user.device.sign("GET", "/", ByteArray(0), null)
        user.device.letInBy("https://learn.example")
        user.key.make()  // as after a restored backup
        assertNull(user.device.server)
        val second = user.device.sign("GET", "/", ByteArray(0), null)
        assertNotEquals(first.device, second.device)
        user.record.writeText("not this")
        val third = user.device.sign("GET", "/", ByteArray(0), null)
        assertNotEquals(second.device, third.device)
        assertEquals(1L, third.counter)
    }

    @Test
    fun `traffic adds up and goes with the key`() {
        user.device.addTraffic(1, 2)  // there is no key yet
        assertEquals(Traffic(0, 0), user.device.traffic)
        user.device.publicKey()
        repeat(2) { user.device.addTraffic(10, 20) }
        assertEquals(Traffic(20, 40), user.device.traffic)
        user.device.delete()
        assertEquals(Traffic(0, 0), user.device.traffic)
        assertNull(user.key.publicKey())
    }

    internal companion object {
        const val PROCESSES = 3
        const val EACH = 20
    }
}

/** Signs, and says with which counters. */
object SigningProcess {
    @JvmStatic
    fun main(arguments: Array<String>) {
        val device = User(File(arguments[0])).device
        repeat(DeviceTest.EACH) { device.sign("GET", "/", ByteArray(0), null).let { println("${it.device} ${it.counter}") } }
    }
}
