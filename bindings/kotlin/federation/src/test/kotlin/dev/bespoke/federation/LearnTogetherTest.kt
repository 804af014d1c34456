// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.federation

import dev.bespoke.BundleSource
import dev.bespoke.Cancelled
import dev.bespoke.ConfigError
import dev.bespoke.PersonalModel
import dev.bespoke.Step
import java.io.File
import java.nio.file.Files
import java.nio.file.Path
import java.util.concurrent.TimeUnit
import kotlin.random.Random
import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.AfterEach
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertNotEquals
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

/** Devices and a real server: rounds, kills, refusals, leaving. */
class LearnTogetherTest {
    private val place: File = Files.createTempDirectory("together").toFile()

    @AfterEach
    fun leave() {
        place.deleteRecursively()
    }

    @Test
    fun `three devices take two rounds over HTTPS and come to one adapter`() {
        Edge(File(place, "edge"), ROUNDS, DEVICES, tls = true).use { edge ->
            val users = List(DEVICES) { User(File(place, "user$it")).join(edge) }
            for (user in users) assertEquals(listOf(1L), user.learn(edge).measured)
            edge.waitForRound(1)
            for (user in users) assertEquals(listOf(2L), user.learn(edge).measured)
            edge.waitForRound(2)
            for (user in users) assertEquals(LearnedTogether(emptyList(), 1, 2, 0.0, true), user.learn(edge))
            assertEquals(listOf("1 3", "2 3"), edge.rows("SELECT round, count(*) FROM numbers WHERE NOT late GROUP BY round"))
            assertEquals(3, edge.rows("SELECT DISTINCT device FROM numbers").size)

            val status = users[0].open { it.federation.status() }
            assertEquals(listOf(2L, 0L, 2L), listOf(status.roundsSent, status.pending, status.round))
            assertEquals(1.0, status.spent)  // 1 / (2 noise²) a round
            assertTrue(status.epsilonSpent!! > status.spent)
            assertTrue(users[0].device.traffic.bytesSent in 1..20_000)
            assertTrue(users[0].device.traffic.bytesReceived > 0)
            val (adapter) = edge.rows("SELECT adapter FROM rounds WHERE number = 2")
            for (user in users) assertEquals(listOf("2 $adapter"), rowsOf(user.database, "SELECT round, adapter FROM federations"))
        }
    }

    @Test
    fun `what others sign, change or repeat is refused`() {
        Edge(File(place, "edge"), ROUNDS, DEVICES).use { edge ->
            val user = User(File(place, "user")).join(edge)
            val body = user.open { it.federation.request() }.body
            val client = user.client(edge)
            val kept = user.record.readText()
            runBlocking { client.ask(body) }
            val forged = Device(PlainKey(File(place, "other")), File(place, "other.json"))
            assertEquals(401, refused { FederationClient(edge.url, forged).ask(body) }.status)
            user.record.writeText(kept)  // the same counter again, as a copy of the request would have it
            val again = refused { client.ask(body) }
            assertEquals(409, again.status)
            assertTrue(again.message!!.startsWith("${edge.url}: "), again.message)
            assertTrue(listOf(again.subject, again.got, again.expected, again.nextStep).none(String::isEmpty))
            runBlocking { client.ask(body) }  // with the next one
        }
    }

    @Test
    fun `a token lets one device in once`() {
        Edge(File(place, "edge"), ROUNDS, DEVICES).use { edge ->
            val (one, other) = List(2) { User(File(place, "user$it")) }
            val token = edge.token()
            assertNull(one.device.server)
            runBlocking { one.client(edge).enrol(token) }
            runBlocking { one.client(edge).enrol(token) }  // killed before the answer was noted
            assertEquals(edge.url, one.device.server)
            assertEquals(403, refused { other.client(edge).enrol(token) }.status)
            assertEquals(403, refused { other.client(edge).enrol("x".repeat(43)) }.status)
            assertNull(other.device.server)
            assertEquals(1, edge.rows("SELECT 1 FROM devices").size)
        }
    }

    @Test
    fun `nothing is sent without consent`() {
        Edge(File(place, "edge"), ROUNDS, DEVICES).use { edge ->
            val user = User(File(place, "user"))
            assertThrows(ConfigError::class.java) { user.learn(edge) }
            assertFalse(user.record.exists())
            assertEquals(Traffic(0, 0), user.device.traffic)
        }
    }

    @Test
    fun `leaving deletes the key and a new one needs a token`() {
        Edge(File(place, "edge"), ROUNDS, DEVICES).use { edge ->
            val user = User(File(place, "user")).join(edge)
            assertEquals(listOf(1L), user.learn(edge).measured)
            val first = user.key.publicKey()!!
            user.open { it.federation.leave() }
            user.device.delete()
            assertNull(user.key.publicKey())
            assertFalse(user.record.exists())
            assertEquals(Traffic(0, 0), user.device.traffic)
            user.open { it.federation.join() }
            assertEquals(401, assertThrows(ServerError::class.java) { user.learn(edge) }.status)
            assertNotEquals(deviceId(first), deviceId(user.key.publicKey()!!))
        }
    }

    @Test
    fun `forgetting says which rounds an example had entered`() {
        Edge(File(place, "edge"), ROUNDS, DEVICES).use { edge ->
            val user = User(File(place, "user")).join(edge)
            user.learn(edge)
            val forgotten = user.open { it.examples.forget("0") }
            assertEquals(listOf(1L), forgotten.rounds)
            assertEquals(0L, forgotten.numbersDropped)  // the server has confirmed them
        }
    }

    @Test
    fun `the shared adapter answers where the user's gate accepts it`() {
        Edge(File(place, "edge"), ROUNDS, devices = 1).use { edge ->
            val user = User(File(place, "user")).join(edge)
            user.learn(edge)
            edge.waitForRound(1)
            user.learn(edge)
            user.open { model ->
                val judged = model.federation.adopt()
                assertEquals(judged.accepted, judged.refusedBecause == null)
                assertEquals(if (judged.accepted == true) 1 else 0, model.versions().size)
            }
        }
    }

    @Test
    fun `a deadline ends a call and numbers that were made are sent later`() {
        Edge(File(place, "edge"), ROUNDS, devices = 1).use { edge ->
            val user = User(File(place, "user")).join(edge)
            user.open { model ->
                val client = user.client(edge)
                try {  // it falls behind the first answer, or into the measurement
                    assertEquals(emptyList<Long>(), learnTogether(model, client, seconds = 1e-4).measured)
                } catch (_: Cancelled) {
                }
                assertEquals(Step.TAKE_PART, model.federation.request().step)
                assertEquals(1L, model.federation.takePart().measured)
                assertEquals(1L, model.federation.status().pending)
                carry(model, client, rounds = 0, seconds = null)
                assertEquals(0L, model.federation.status().pending)
                assertEquals(1L, model.federation.status().roundsSent)
            }
            assertEquals(listOf("1"), edge.rows("SELECT count(*) FROM numbers"))
            assertThrows(IllegalArgumentException::class.java) { user.learn(edge, rounds = 0) }
        }
    }

    @Test
    fun `a process that is killed anywhere sends one number a round`() {
        Edge(File(place, "edge"), rounds = 1000, devices = 1).use { edge ->
            val user = User(File(place, "user")).join(edge)
            val chance = Random.nextLong().also { println("seed $it") }.let(::Random)
            repeat(KILLS) { Child(File(place, "user"), edge).kill(chance.nextLong(0, 600)) }
            user.learn(edge)
            val status = user.open { it.federation.status() }
            val counted = status.roundsSent - status.pending
            assertTrue(counted > 0)
            assertEquals(listOf("$counted $counted"), edge.rows("SELECT count(*), count(DISTINCT round) FROM numbers"))
            assertEquals(0.5 * status.roundsSent, status.spent)
        }
    }

    private fun refused(call: suspend () -> Unit): ServerError = assertThrows(ServerError::class.java) { runBlocking { call() } }

    /** A JVM that takes part until it is killed. */
    private class Child(user: File, edge: Edge) {
        private val process = ProcessBuilder(
            Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-Djava.library.path=${System.getProperty("java.library.path")}", "-Dbespoke.fixture=${System.getProperty("bespoke.fixture")}",
            "-cp", System.getProperty("java.class.path"), Child::class.java.name, user.path, edge.url,
        ).redirectError(ProcessBuilder.Redirect.INHERIT).start()

        fun kill(afterMs: Long) {
            assertEquals('.'.code, process.inputStream.read())  // its first request is next
            Thread.sleep(afterMs)
            assertTrue(process.isAlive)
            process.destroyForcibly()
            assertTrue(process.waitFor(30, TimeUnit.SECONDS))
            assertEquals(128 + SIGKILL, process.exitValue())
        }

        companion object {
            @JvmStatic
            fun main(arguments: Array<String>) = runBlocking {
                val (folder, url) = arguments
                val user = User(File(folder))
                val client = FederationClient(url, user.device)
                PersonalModel.open(BundleSource.At(Federated.bundle.path), "$folder/state").use { model ->
                    print('.')
                    System.out.flush()
                    while (true) learnTogether(model, client, rounds = 20)
                }
            }
        }
    }

    private companion object {
        const val ROUNDS = 2
        const val DEVICES = 3
        const val SIGKILL = 9
        val KILLS = if (System.getenv("BESPOKE_FULL") == "1") 50 else 4
    }
}
