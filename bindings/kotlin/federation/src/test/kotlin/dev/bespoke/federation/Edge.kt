// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.federation

import java.io.File
import java.io.IOException
import java.net.ServerSocket
import java.net.URI
import java.security.KeyStore
import java.security.cert.CertificateFactory
import java.util.concurrent.TimeUnit
import javax.net.ssl.HttpsURLConnection
import javax.net.ssl.SSLContext
import javax.net.ssl.TrustManagerFactory
import javax.net.ssl.X509TrustManager

/** What tests/kotlin/prepare.py has made for a federation. */
object Federated {
    private val folder = File(checkNotNull(System.getProperty("bespoke.fixture")) { "run make test-kotlin" })

    /** Its devices send noised numbers of tokens. */
    val bundle = File(folder, "together.bundle")
    val leader = File(folder, "leader.pem")
    val vectors = File(folder, "signed_request_vectors.json")

    /** The Python in which bespoke-federated is installed. */
    val python = File(folder, "server.txt").readText()
}

/** A server of bespoke-federated, in a process of its own, with a task of [rounds] that each end with the numbers of [devices]. */
class Edge(private val place: File, rounds: Int, private val devices: Int, tls: Boolean = false) : AutoCloseable {
    private val state = File(place, "state")
    private val port = ServerSocket(0).use { it.localPort }
    val url = if (tls) "https://localhost:$port" else "http://127.0.0.1:$port"

    /** Takes this server's certificate alone; null: it has none. */
    val trust: X509TrustManager?

    private val process: Process

    init {
        place.mkdirs()
        trust = if (tls) certified() else null
        val settings = mapOf(
            "key" to Federated.leader.path, "state" to state.path, "port" to "$port", "rounds" to "$rounds", "devices" to "$devices",
            "least-devices" to "$devices", "rate" to "0.05", "retry-seconds" to "0", "device-requests" to "100000",
            "address-requests" to "100000",
        ) + if (tls) mapOf("tls-cert" to "$place/tls-cert.pem", "tls-key" to "$place/tls-key.pem") else emptyMap()
        val options = settings.flatMap { (name, value) -> listOf("--$name", value) }
        process = ProcessBuilder(listOf(Federated.python, "-m", "bespoke_federated", "serve", Federated.bundle.path) + options)
            .redirectErrorStream(true).redirectOutput(File(place, "log")).start()
        await("the server to answer") {
            check(process.isAlive) { "the server has ended: ${File(place, "log").readText()}" }
            try {
                get("/v1/health")
                true
            } catch (_: IOException) {
                false
            }
        }
    }

    /** A new one-time token. */
    fun token(): String = python("-m", "bespoke_federated", "token", "--state", state.path)

    /** What the server has kept, a line for each row. */
    fun rows(statement: String): List<String> = rowsOf(File(state, "edge.sqlite"), statement)

    /** Waits until a round has ended. */
    fun waitForRound(number: Int) = await("round $number to end") { Regex("\"rounds_ended\":(\\d+)").find(get("/v1/health"))!!.groupValues[1].toInt() >= number }

    override fun close() {
        process.destroy()
        process.waitFor(30, TimeUnit.SECONDS)
    }

    private fun get(path: String): String {
        val connection = URI(url + path).toURL().openConnection()
        if (connection is HttpsURLConnection) {
            connection.sslSocketFactory = SSLContext.getInstance("TLS").apply { init(null, arrayOf(trust), null) }.socketFactory
        }
        return connection.getInputStream().use { it.readBytes().decodeToString() }
    }

    private fun certified(): X509TrustManager {
        python("-m", "bespoke_federated", "key", "--folder", place.path)
        val certificate = File(place, "tls-cert.pem").inputStream().use(CertificateFactory.getInstance("X.509")::generateCertificate)
        val known = KeyStore.getInstance(KeyStore.getDefaultType()).apply { load(null); setCertificateEntry("server", certificate) }
        val factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm()).apply { init(known) }
        return factory.trustManagers.single() as X509TrustManager
    }

    private fun await(what: String, condition: () -> Boolean) {
        val end = System.nanoTime() + Integer.getInteger("bespoke.await", 60) * 1_000_000_000L
        while (!condition()) {
            check(System.nanoTime() < end) { "waited for $what" }
            Thread.sleep(50)
        }
    }
}

/** Of a database of SQLite, a line for each row. */
fun rowsOf(database: File, statement: String): List<String> = python(
    "-c", "import sqlite3, sys\nfor row in sqlite3.connect(sys.argv[1]).execute(sys.argv[2]): print(*row)", database.path, statement,
).lines().filter { it.isNotEmpty() }

/** What Python says. */
private fun python(vararg arguments: String): String {
    val done = ProcessBuilder(Federated.python, *arguments).redirectErrorStream(true).start()
    val said = done.inputStream.readBytes().decodeToString()
    check(done.waitFor() == 0) { said }
    return said.trim()
}
