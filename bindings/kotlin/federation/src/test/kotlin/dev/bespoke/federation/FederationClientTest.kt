// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.federation

import java.io.File
import java.net.InetAddress
import java.nio.file.Files
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import okhttp3.mockwebserver.MockResponse
import okhttp3.mockwebserver.MockWebServer
import okhttp3.mockwebserver.SocketPolicy
import org.junit.jupiter.api.AfterEach
import org.junit.jupiter.api.Assertions.assertArrayEquals
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

/** What servers may answer that are broken, slow or not ours. */
class FederationClientTest {
    private val place: File = Files.createTempDirectory("client").toFile()
    private val server = MockWebServer().apply { start(InetAddress.getByName("127.0.0.1"), 0) }
    private val url = "http://127.0.0.1:${server.port}/learn"
    private val user = User(place)
    private val client = FederationClient("$url/", user.device)  // a slash at the end changes nothing

    @AfterEach
    fun leave() {
        server.shutdown()
        place.deleteRecursively()
    }

    @Test
    fun `a request carries what was signed`() = runBlocking {
        server.enqueue(MockResponse().setBody("answer"))
        assertEquals("answer", client.ask(BODY).decodeToString())
        val sent = server.takeRequest()
        assertEquals("POST /learn/v1/ask HTTP/1.1", sent.requestLine)
        assertEquals(listOf(deviceId(user.key.publicKey()!!), "1"), listOf(sent.getHeader(DEVICE_HEADER), sent.getHeader(COUNTER_HEADER)))
        assertEquals(86, sent.getHeader(SIGNATURE_HEADER)!!.length)
        assertEquals(BODY, sent.body.readUtf8())
        assertEquals(Traffic(BODY.length.toLong(), 6), user.device.traffic)
    }

    @Test
    fun `a file is asked for by its bytes`() = runBlocking {
        server.enqueue(MockResponse().setResponseCode(206).setBody("word"))
        assertArrayEquals("word".toByteArray(), client.fetch("ab", 10, 4))
        val sent = server.takeRequest()
        assertEquals("GET /learn/v1/files/ab HTTP/1.1", sent.requestLine)
        assertEquals("bytes=10-13", sent.getHeader("Range"))
        assertEquals(0, client.fetch("ab", 14, 0).size)
        assertEquals(1, server.requestCount)
    }

    @Test
    fun `a file that the server no longer has is empty`() = runBlocking {
        for (status in listOf(404, 410)) {
            server.enqueue(MockResponse().setResponseCode(status).setBody("gone"))
            assertEquals(0, client.fetch("ab", 0, 4).size)
        }
        server.enqueue(MockResponse().setResponseCode(403))
        assertEquals(403, refused { client.fetch("ab", 0, 4) }.status)
        server.enqueue(MockResponse().setResponseCode(404))
        assertEquals(404, refused { client.ask(BODY) }.status)
    }

    @Test
    fun `an error is said in the server's words where it has them`() {
        val words = """{"object": "the address", "got": "9 requests", "expected": "fewer", "next_step": "Wait", "more": 1}"""
        server.enqueue(MockResponse().setResponseCode(429).setHeader("Retry-After", "7").setBody(words))
        val said = refused { client.ask(BODY) }
        assertEquals("$url: the address: got 9 requests; expected fewer. Wait", said.message)
        assertEquals(listOf<Number?>(429, 7L), listOf(said.status, said.retrySeconds))
        for (body in listOf("", "<html>", "{}", "[1]", """{"object": 3}""", "x".repeat(100_000))) {
            server.enqueue(MockResponse().setResponseCode(500).setHeader("Retry-After", "soon").setBody(body))
            val other = refused { client.ask(BODY) }
            assertEquals("status 500", other.got)
            assertEquals(0L, other.retrySeconds)
        }
    }

    @Test
    fun `nothing is sent twice and no answer leads elsewhere`() {
        val again = listOf(
            MockResponse().setResponseCode(302).setHeader("Location", "$url/v1/ask"), MockResponse().setResponseCode(308).setHeader("Location", "/"),
            MockResponse().setResponseCode(503).setHeader("Retry-After", "0"), MockResponse().setResponseCode(408),
            MockResponse().setResponseCode(401).setHeader("WWW-Authenticate", "Basic realm=x"),
            MockResponse().setSocketPolicy(SocketPolicy.DISCONNECT_AFTER_REQUEST), MockResponse().setSocketPolicy(SocketPolicy.DISCONNECT_AT_START),
        )
        for ((number, answer) in again.withIndex()) {
            server.enqueue(answer)
            refused { if (number % 2 == 0) client.ask(BODY) else client.fetch("ab", 0, 4) }
        }
        val counters = List(server.requestCount) { server.takeRequest() }.mapNotNull { it.getHeader(COUNTER_HEADER)?.toLong() }
        assertEquals(counters.distinct(), counters)
    }

    @Test
    fun `more than was asked for is refused`() {
        server.enqueue(MockResponse().setResponseCode(206).setBody("12345"))
        assertEquals("more than 4 bytes", refused { client.fetch("ab", 0, 4) }.got)
    }

    @Test
    fun `a server that cannot be reached says so`() {
        server.shutdown()
        val said = refused { client.ask(BODY) }
        assertEquals(listOf(url, "an answer", null), listOf(said.subject, said.expected, said.status))
    }

    @Test
    fun `a request ends with its coroutine`() = runBlocking {
        server.enqueue(MockResponse().setSocketPolicy(SocketPolicy.NO_RESPONSE))
        val begun = CompletableDeferred<Unit>()
        val asking = launch(Dispatchers.IO) {
            begun.complete(Unit)
            client.ask(BODY)
        }
        begun.await()
        server.takeRequest()
        val before = System.nanoTime()
        asking.cancelAndJoin()
        assertTrue(System.nanoTime() - before < 20_000_000_000)
    }

    @Test
    fun `an address without protection is refused`() {
        for (address in listOf("http://example.org", "ftp://example.org", "example.org", "https://", "https://a@b", "https://a/?x=1", "https://a/#b", "", "http://localhost.example.org")) {
            assertThrows(IllegalArgumentException::class.java, { FederationClient(address, user.device) }, address)
        }
        for (address in listOf("https://learn.example", "https://learn.example:8443/a/", "http://localhost:1", "http://[::1]:1")) FederationClient(address, user.device)
        assertNull(user.key.publicKey())
    }

    private fun refused(call: suspend () -> Unit): ServerError = assertThrows(ServerError::class.java) { runBlocking { call() } }

    private companion object {
        const val BODY = """{"round": 0}"""
    }
}
