// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.delivery

import java.io.File
import java.io.FileNotFoundException
import java.io.FileOutputStream
import java.io.IOException
import java.nio.file.Files
import java.nio.file.StandardCopyOption
import kotlinx.serialization.json.Json

/**
 * What was asked for of one bundle, in files: WorkManager keeps at most 10,240 bytes with scheduled work, and a list of deltas may be longer.
 * A file is called by the sha256 of its content, and the work keeps that name. So the work that waits has its own file whenever the process
 * is killed, and a file that is not what was written is seen.
 */
internal class Requests(private val folder: File) {
    /** Its sha256. The file has its name once all of it is on the disk. */
    fun keep(download: BundleDownload): String = synchronized(alone) {
        val bytes = Json.encodeToString(BundleDownload.serializer(), download).toByteArray()
        val sha256 = sha256(bytes)
        val part = File(folder, "$sha256.part")
        try {
            Files.createDirectories(folder.toPath())
            FileOutputStream(part).use { out ->
                out.write(bytes)
                out.fd.sync()
            }
            Files.move(part.toPath(), file(sha256).toPath(), StandardCopyOption.ATOMIC_MOVE)
        } catch (error: IOException) {
            part.delete()
            val got = "'${error.message}' with ${folder.usableSpace} bytes left"
            throw DeliveryError("$folder", got, "room for a request of ${bytes.size} bytes", "Make room on the device, and ask again.")
        }
        newest[folder] = sha256
        sha256
    }

    /** What was asked for; null: nothing is kept by this sha256. */
    fun read(sha256: String): BundleDownload? {
        val file = file(sha256)
        val bytes = try {
            file.readBytes()
        } catch (_: FileNotFoundException) {
            return null
        }
        if (sha256(bytes) != sha256) {
            throw DeliveryError("$file", "${bytes.size} bytes of another sha256", "the request that was written", "Call Delivery.request again.")
        }
        return try {
            Json.decodeFromString(BundleDownload.serializer(), bytes.decodeToString())
        } catch (error: IllegalArgumentException) {  // of another version of the app
            throw DeliveryError("$file", "'${error.message}'", "a request of this version of the app", "Call Delivery.request again.")
        }
    }

    /** It was delivered. */
    fun delete(sha256: String): Unit = synchronized(alone) {
        file(sha256).delete()
        folder.delete()  // if it is empty
    }

    /** Nothing is wanted any more, until the next [keep]. */
    fun forget(): Unit = synchronized(alone) { newest.remove(folder) }

    /** WorkManager has the work for [sha256] (null: none) and no other: the other files go, unless something else was asked for since. */
    fun keepOnly(sha256: String?): Unit = synchronized(alone) {
        if (newest[folder] != sha256) return
        folder.listFiles().orEmpty().filter { sha256 == null || it != file(sha256) }.forEach { it.delete() }
        folder.delete()  // if it is empty
    }

    private fun file(sha256: String) = File(folder, "$sha256.json")

    private companion object {
        val alone = Any()
        val newest = mutableMapOf<File, String>()  // by folder, of this process
    }
}
