// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.federation

import java.io.IOException
import java.util.Base64
import java.util.concurrent.TimeUnit
import javax.net.ssl.SSLContext
import javax.net.ssl.X509TrustManager
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.suspendCancellableCoroutine
import kotlinx.coroutines.withContext
import kotlinx.serialization.SerialName
import kotlinx.serialization.Serializable
import kotlinx.serialization.SerializationException
import kotlinx.serialization.json.Json
import okhttp3.ConnectionPool
import okhttp3.HttpUrl.Companion.toHttpUrl
import okhttp3.HttpUrl.Companion.toHttpUrlOrNull
import okhttp3.MediaType.Companion.toMediaType
import okhttp3.OkHttpClient
import okhttp3.Protocol
import okhttp3.Request
import okhttp3.RequestBody.Companion.toRequestBody
import okhttp3.Response

/**
 * A device's requests to a server, each signed with the device's key. Calls raise [ServerError] where the server cannot be reached or
 * refuses. Nothing is sent twice, and no answer leads elsewhere: a signature is good once, for one path at one server.
 *
 * @param server its address, https://... Plain http is taken for this machine alone
 * @property device whose key signs
 * @param trust decides which certificates are good; null: the system
 */
class FederationClient(server: String, val device: Device, trust: X509TrustManager? = null) {
    /** The server's address, without a slash at its end. */
    val server: String = checked(server)

    private val client = OkHttpClient.Builder()
        .connectTimeout(TIMEOUT_SECONDS, TimeUnit.SECONDS)
        .readTimeout(TIMEOUT_SECONDS, TimeUnit.SECONDS)
        .writeTimeout(TIMEOUT_SECONDS, TimeUnit.SECONDS)
        // Nothing is sent again: not to where an answer leads, not where a connection breaks, and not where a server says "at once".
        .followRedirects(false)
        .followSslRedirects(false)
        .retryOnConnectionFailure(false)
        .addNetworkInterceptor { sent -> sent.proceed(sent.request()).let { if (it.code == UNAVAILABLE) withoutWait(it) else it } }
        .protocols(listOf(Protocol.HTTP_1_1))
        .connectionPool(ConnectionPool(0, 1, TimeUnit.MILLISECONDS))  // a computation lies between requests: no server waits so long
        .apply {
            if (trust != null) sslSocketFactory(SSLContext.getInstance("TLS").apply { init(null, arrayOf(trust), null) }.socketFactory, trust)
        }
        .build()

    /** Has the server let this device in. It gives each device a token, which is good once. */
    suspend fun enrol(token: String) {
        val enrolment = Enrolment(token, Base64.getEncoder().encodeToString(device.publicKey()))
        send("POST", "/v1/enrol", Json.encodeToString(Enrolment.serializer(), enrolment).toByteArray(), null, MAX_ANSWER)
        device.letInBy(server)
    }

    /** Posts the device's document, the body of a [dev.bespoke.FederationRequest]. The server's signed answer. */
    suspend fun ask(body: String): ByteArray =
        send("POST", "/v1/ask", body.toByteArray(), documents.decodeFromString(Document.serializer(), body).round, MAX_ANSWER)

    /** Bytes of a file that the server has named; none if the server no longer has it. */
    suspend fun fetch(sha256: String, offset: Long, size: Long): ByteArray = try {
        if (size == 0L) ByteArray(0) else send("GET", "/v1/files/$sha256", null, null, size, "bytes=$offset-${offset + size - 1}")
    } catch (error: ServerError) {
        if (error.status in GONE) ByteArray(0) else throw error
    }

    private suspend fun send(
        method: String, path: String, body: ByteArray?, round: Long?, most: Long, range: String? = null,
    ): ByteArray = withContext(Dispatchers.IO) {
        val url = (server + path).toHttpUrl()
        val signed = device.sign(method, url.encodedPath, body ?: ByteArray(0), round)  // the path as it is sent
        val request = Request.Builder().url(url).method(method, body?.toRequestBody(JSON))
            .header(DEVICE_HEADER, signed.device)
            .header(COUNTER_HEADER, "${signed.counter}")
            .header(SIGNATURE_HEADER, signed.signature)
            .header("Accept-Encoding", "identity")  // what is compressed may become larger than what was asked for
        if (range != null) request.header("Range", range)
        val answer = try {
            answer(request.build()) { if (it.isSuccessful) bytes(it, most + 1) else throw refused(it) }
        } catch (problem: IOException) {
            throw ServerError(server, "'${problem.message ?: problem.javaClass.simpleName}'", "an answer", "Try again later.")
        }
        device.addTraffic((body?.size ?: 0).toLong(), answer.size.toLong())
        if (answer.size > most) throw ServerError(server, "more than $most bytes", "no more", "Ask who runs the server.")
        answer
    }

    /** On this thread, and ended with the coroutine. The request has ended when this returns. */
    private suspend fun <T> answer(request: Request, read: (Response) -> T): T = suspendCancellableCoroutine { waiting ->
        val call = client.newCall(request)
        waiting.invokeOnCancellation { call.cancel() }
        // As a result: what a request that was ended throws does not take the place of the cancellation.
        waiting.resumeWith(runCatching { call.execute().use(read) })
    }

    /** What the server says of an error, in its words where they are such. */
    private fun refused(response: Response): ServerError {
        val wait = response.header("Retry-After")?.takeIf { it.matches(Regex("[0-9]{1,8}")) }?.toLong() ?: 0
        return try {
            val said = documents.decodeFromString(Problem.serializer(), bytes(response, MAX_PROBLEM).decodeToString())
            ServerError("$server: ${said.subject}", said.got, said.expected, said.nextStep, response.code, wait)
        } catch (_: SerializationException) {
            ServerError(server, "status ${response.code}", "an answer", "Ask who runs the server.", response.code, wait)
        } catch (_: IOException) {
            ServerError(server, "status ${response.code}", "an answer", "Ask who runs the server.", response.code, wait)
        }
    }

    /** OkHttp sends a request again where an answer wants no wait. For who reads the answer, no wait and 0 are the same. */
    private fun withoutWait(response: Response): Response =
        if (response.header("Retry-After")?.trim()?.toIntOrNull() == 0) response.newBuilder().removeHeader("Retry-After").build() else response

    private fun bytes(response: Response, most: Long): ByteArray {
        val source = response.body!!.source()
        source.request(most)
        return source.buffer.readByteArray(minOf(most, source.buffer.size))
    }

    @Serializable
    private class Enrolment(val token: String, @SerialName("public_key") val publicKey: String)

    /** What is read here of a device's document. */
    @Serializable
    private class Document(val round: Long)

    @Serializable
    private class Problem(
        @SerialName("object") val subject: String,
        val got: String,
        val expected: String,
        @SerialName("next_step") val nextStep: String,
    )

    internal companion object {
        private const val MAX_ANSWER = 16L shl 20  // bytes of a document, as in the device core
        private const val MAX_PROBLEM = 4096L  // bytes of an error's answer
        private const val TIMEOUT_SECONDS = 60L
        private const val UNAVAILABLE = 503
        private val GONE = setOf(404, 410)  // statuses of a file that the server no longer has
        private val JSON = "application/json".toMediaType()
        private val LOOPBACK = setOf("127.0.0.1", "::1", "localhost")
        private val documents = Json { ignoreUnknownKeys = true }

        /** The address without a slash at its end. */
        fun checked(server: String): String {
            val parsed = server.toHttpUrlOrNull()
            require(parsed != null && (parsed.isHttps || parsed.host in LOOPBACK)) {
                "server: got '$server'; expected https:// and the server's name, or http:// for this machine alone. Give the address of the app's server."
            }
            require(parsed.query == null && parsed.fragment == null && parsed.username.isEmpty() && parsed.password.isEmpty()) {
                "server: got '$server'; expected a name, perhaps a port and a path. Give the address of the app's server."
            }
            return server.trimEnd('/')
        }
    }
}
