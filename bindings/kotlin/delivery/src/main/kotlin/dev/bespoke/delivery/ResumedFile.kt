// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.delivery

import java.io.EOFException
import java.io.File
import java.io.IOException
import java.io.RandomAccessFile
import java.nio.file.Files
import java.nio.file.StandardCopyOption
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.coroutineScope
import okhttp3.OkHttpClient
import okhttp3.Request
import okhttp3.Response

/**
 * An archive on its way into a folder: what has come stays in `SHA256.partial` over cuts and kills, and only the rest is asked for. It
 * gets the name `SHA256.zip` once it has that hash, so a file of that name is whole.
 *
 * The rest is asked for under the server's ETag (If-Range): a file that changed meanwhile comes anew, from its first byte. A server that
 * gives no strong ETag is asked without: a rest that does not fit shows in the hash, and then the whole comes once more.
 */
internal class ResumedFile(folder: File, private val archive: Archive, private val client: OkHttpClient) {
    private val partial = File(folder, "${archive.sha256}.partial")
    private val tag = File(folder, "${archive.sha256}.etag")
    private val whole = File(folder, "${archive.sha256}.zip")

    /** The archive, whole. [told] how many bytes of it are here, as they come; IOException where trying again later may help. */
    suspend fun fetch(told: (Long) -> Unit): File {
        if (whole.isFile) return whole
        partial.parentFile!!.mkdirs()
        val isResumed = partial.length() > 0
        receiveAll(told)
        if (takesItsName()) return whole
        if (isResumed) {
            receiveAll(told)
            if (takesItsName()) return whole
        }
        refuse("a file of another sha256", archive.sha256)
    }

    /** Over as many cuts as there are, as long as each connection brings something. */
    private suspend fun receiveAll(told: (Long) -> Unit) {
        while (partial.length() != archive.bytes) {
            if (partial.length() > archive.bytes) discard()
            val before = partial.length()
            try {
                receive(before, told)
            } catch (cut: IOException) {
                if (partial.length() <= before) throw cut
            }
        }
        told(archive.bytes)
    }

    private suspend fun receive(have: Long, told: (Long) -> Unit) {
        // A server that compresses on its way could not say where the rest begins.
        val request = Request.Builder().url(archive.url).header("Accept-Encoding", "identity")
        if (have > 0) {
            request.header("Range", "bytes=$have-")
            if (tag.isFile) request.header("If-Range", tag.readText())
        }
        answer(request.build()) { response ->
            when {
                response.code == PARTIAL && response.header("Content-Range") == "bytes $have-${archive.bytes - 1}/${archive.bytes}" ->
                    write(response, have, told)
                response.code == OK -> {
                    val size = response.body!!.contentLength()
                    if (size != UNKNOWN && size != archive.bytes) refuse("a file of $size bytes", "${archive.bytes}")
                    begin(response)
                    write(response, 0, told)
                }
                response.code == PARTIAL || response.code == NOT_SATISFIABLE -> {
                    discard()
                    throw IOException("${archive.url}: another rest than the one asked for (${response.header("Content-Range")})")
                }
                response.code in GONE && response.code !in LATER -> refuse("the answer ${response.code}", "the file")
                else -> throw IOException("${archive.url}: the answer ${response.code}")
            }
        }
    }

    /** Returns when nothing is written any more, also where it is cancelled: the next one to come may write to the same file. */
    private suspend fun answer(request: Request, read: (Response) -> Unit) = coroutineScope {
        val call = client.newCall(request)
        val reading = async(Dispatchers.IO) { call.execute().use(read) }
        try {
            reading.await()
        } catch (cancelled: CancellationException) {
            call.cancel()
            throw cancelled
        }
    }

    private fun begin(response: Response) {
        discard()
        response.header("ETag")?.takeIf { it.startsWith("\"") }?.let(tag::writeText)  // a weak one does not promise the same bytes
    }

    private fun write(response: Response, from: Long, told: (Long) -> Unit) = RandomAccessFile(partial, "rw").use { out ->
        out.seek(from)
        val source = response.body!!.source()
        val chunk = ByteArray(CHUNK)
        var at = from
        while (at < archive.bytes) {
            val got = source.read(chunk, 0, minOf(chunk.size.toLong(), archive.bytes - at).toInt())
            if (got < 0) throw EOFException("${archive.url}: ended after $at of ${archive.bytes} bytes")
            out.write(chunk, 0, got)
            at += got
            told(at)
        }
        out.fd.sync()  // before it gets its name
    }

    private fun takesItsName(): Boolean {
        if (sha256(partial) != archive.sha256) {
            discard()
            return false
        }
        tag.delete()
        Files.move(partial.toPath(), whole.toPath(), StandardCopyOption.ATOMIC_MOVE)
        return true
    }

    private fun discard() {
        tag.delete()
        partial.delete()
    }

    private fun refuse(got: String, expected: String): Nothing =
        throw DeliveryError(archive.url, got, expected, "See that the server has the archive that the app asks for.")

    private companion object {
        const val CHUNK = 1 shl 16
        const val UNKNOWN = -1L
        const val OK = 200
        const val PARTIAL = 206
        const val NOT_SATISFIABLE = 416
        val GONE = 400..499
        val LATER = setOf(408, 425, 429)  // time-out, too early, too many
    }
}
