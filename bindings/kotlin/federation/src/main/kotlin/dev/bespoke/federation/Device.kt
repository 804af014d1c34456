// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.federation

import java.io.File
import kotlinx.serialization.SerialName
import kotlinx.serialization.Serializable
import kotlinx.serialization.SerializationException
import kotlinx.serialization.json.Json

/**
 * What has passed between this device and servers, in bytes of bodies.
 *
 * @property bytesSent up
 * @property bytesReceived down
 */
data class Traffic(val bytesSent: Long, val bytesReceived: Long)

/**
 * A user's device as servers know it: a key, and in the file [record] a counter of requests, since a server accepts each counter once.
 * Deleting both ends what a server can tell about this device.
 *
 * Key and file belong together. If one of them is gone, or the file is of another key, a new key begins at its first request.
 */
class Device(private val key: SigningKey, record: File) {
    private val file = DurableFile(record)

    /** The server that has let this device in; null: none has. */
    val server: String? get() = file.alone { kept()?.server }

    /** What has passed with this key. */
    val traffic: Traffic get() = file.alone { kept().let { Traffic(it?.bytesSent ?: 0, it?.bytesReceived ?: 0) } }

    /** Deletes the key and what is kept about it. */
    fun delete(): Unit = file.alone {
        key.delete()
        file.delete()
    }

    /** The public key, a SubjectPublicKeyInfo in DER. Makes the key if there is none. */
    internal fun publicKey(): ByteArray = file.alone {
        made()
        checkNotNull(key.publicKey())
    }

    /** Null: it is let in no more. */
    internal fun letInBy(server: String?): Unit = file.alone { keep(made().copy(server = server)) }

    /** The counter is on the disk before anything is sent: a process that is killed skips one and repeats none. */
    internal fun sign(method: String, path: String, body: ByteArray, round: Long?): SignedRequest = file.alone {
        val before = made()
        check(before.counter < MAX_COUNTER) { "the counter of requests has come to its end" }
        val next = before.copy(counter = before.counter + 1)
        keep(next)
        val exact = signedBytes(method, path, body, next.device, round, next.counter)
        SignedRequest(next.device, next.counter, base64Url(rawSignature(key.sign(exact))))
    }

    internal fun addTraffic(sent: Long, received: Long): Unit = file.alone {
        kept()?.let { keep(it.copy(bytesSent = it.bytesSent + sent, bytesReceived = it.bytesReceived + received)) }
    }

    private fun made(): Kept = kept() ?: Kept(deviceId(key.make())).also(::keep)

    private fun kept(): Kept? {
        val text = file.read() ?: return null
        val found = try {
            Json.decodeFromString(Kept.serializer(), text)
        } catch (_: SerializationException) {
            return null
        }
        return found.takeIf { key.publicKey()?.let(::deviceId) == it.device }
    }

    private fun keep(kept: Kept) = file.write(Json.encodeToString(Kept.serializer(), kept))

    @Serializable
    private data class Kept(
        val device: String,
        val server: String? = null,
        val counter: Long = 0,
        @SerialName("bytes_sent") val bytesSent: Long = 0,
        @SerialName("bytes_received") val bytesReceived: Long = 0,
    )
}

/** The values of the headers of a request. */
internal class SignedRequest(val device: String, val counter: Long, val signature: String)
