// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.delivery

import java.io.File
import java.net.InetAddress
import java.security.MessageDigest
import java.util.concurrent.CopyOnWriteArrayList
import java.util.concurrent.TimeUnit
import okhttp3.mockwebserver.Dispatcher
import okhttp3.mockwebserver.MockResponse
import okhttp3.mockwebserver.MockWebServer
import okhttp3.mockwebserver.RecordedRequest
import okhttp3.mockwebserver.SocketPolicy
import okio.Buffer

/** What the server sent of which archive: from which byte, and how many. */
class Sent(val archive: String, val from: Int, val bytes: Int)

/**
 * A server with archives, as RFC 9110 has it, and what may go wrong with one.
 *
 * @property cuts after how many bytes the connection of the next answers breaks
 * @property takesRanges without, every answer is the whole file
 * @property etag of all files; null: it gives none
 */
class ArchiveServer : AutoCloseable {
    private val server = MockWebServer()
    private val files = mutableMapOf<String, ByteArray>()
    val sent = CopyOnWriteArrayList<Sent>()
    val cuts = ArrayDeque<Int>()
    var takesRanges = true
    var etag: String? = "\"first\""
    var bytesPerSecond: Long? = null
    var status = 200

    init {
        server.dispatcher = object : Dispatcher() {
            override fun dispatch(request: RecordedRequest): MockResponse = synchronized(this@ArchiveServer) { answer(request) }
        }
        server.start(InetAddress.getByName("127.0.0.1"), 0)
    }

    fun put(name: String, bytes: ByteArray): Archive {
        files[name] = bytes
        return of(name)
    }

    fun put(name: String, file: File): Archive = put(name, file.readBytes())

    /** As an app asks for it that knows what the server has. */
    fun of(name: String) = Archive(url(name), sha256Of(files.getValue(name)), files.getValue(name).size.toLong())

    fun url(name: String) = "http://127.0.0.1:${server.port}/$name"

    fun asked() = sent.map { it.archive }

    private fun answer(request: RecordedRequest): MockResponse {
        val name = request.requestUrl!!.encodedPath.removePrefix("/")
        val file = files[name]
        if (status != 200 || file == null) {
            sent += Sent(name, 0, 0)
            return MockResponse().setResponseCode(if (file == null) 404 else status)
        }
        check(request.getHeader("Accept-Encoding") == "identity")
        val condition = request.getHeader("If-Range")
        val asks = request.getHeader("Range")?.removeSurrounding("bytes=", "-")?.toInt()
        val from = asks.takeIf { takesRanges && (condition == null || condition == etag) } ?: 0
        val response = MockResponse()
        etag?.let { response.setHeader("ETag", it) }
        if (from >= file.size) return response.setResponseCode(416).setHeader("Content-Range", "bytes */${file.size}")
        val bytes = minOf(cuts.removeFirstOrNull() ?: file.size, file.size - from)
        response.setBody(Buffer().write(file, from, bytes)).setHeader("Content-Length", file.size - from)
        if (from > 0) response.setResponseCode(206).setHeader("Content-Range", "bytes $from-${file.size - 1}/${file.size}")
        if (bytes < file.size - from) response.setSocketPolicy(SocketPolicy.DISCONNECT_AT_END)
        bytesPerSecond?.let { response.throttleBody(it / 10, 100, TimeUnit.MILLISECONDS) }
        sent += Sent(name, from, bytes)
        return response
    }

    override fun close() = server.shutdown()
}

fun sha256Of(bytes: ByteArray): String = MessageDigest.getInstance("SHA-256").digest(bytes).joinToString("") { "%02x".format(it) }
