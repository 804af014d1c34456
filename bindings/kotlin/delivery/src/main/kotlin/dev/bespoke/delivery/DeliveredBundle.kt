// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.delivery

import dev.bespoke.BundleError
import dev.bespoke.PersonalModel
import java.io.File
import java.io.InputStream
import java.util.zip.ZipFile
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.withContext
import kotlinx.serialization.ExperimentalSerializationApi
import kotlinx.serialization.Serializable
import kotlinx.serialization.SerializationException
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.decodeFromStream
import okhttp3.OkHttpClient

/** How far a delivery is: bytes that are here, of those that are needed as far as is known. */
@Serializable
data class DeliveryProgress(val bytes: Long, val of: Long)

/**
 * A folder with a bundle, what was asked for, the archives on their way to it, and a note which ones made it. The bundle is replaced whole,
 * by the core, which holds every file against its hash; until then the old one stays what it is.
 */
internal class DeliveredBundle(private val folder: File, private val client: OkHttpClient) {
    val bundle = File(folder, "bundle")
    private val archives = File(folder, "archives")
    private val note = File(folder, "delivered.json")
    val requests = Requests(File(folder, "requests"))

    /** Brings what [download] says, by the fewest bytes: by a delta, by the method alone, or all of it. */
    suspend fun bring(download: BundleDownload, told: (DeliveryProgress) -> Unit) = withContext(Dispatchers.IO) {
        val wanted = Json.encodeToString(BundleDownload.serializer(), download)
        val isThere = manifest.isFile && note.isFile && note.readText() == wanted
        if (!isThere) {
            keepOnly(download)
            if (!update(download, told)) install(download, listOf(download.method, download.weights), told)
            note.writeText(wanted)  // killed before it: the next time finds the archives or the bundle itself, and brings nothing twice
        }
        archives.deleteRecursively()
        Unit
    }

    /** Whether what was asked for last, the request of this sha256, is here. */
    fun isDelivered(sha256: String): Boolean = manifest.isFile && note.isFile && sha256(note) == sha256

    fun delete(): Boolean = folder.deleteRecursively()

    private val manifest get() = File(bundle, MANIFEST)

    /** Out of the bundle that is there; false: there is none, it has other weights, or its files are not what they were. */
    private suspend fun update(download: BundleDownload, told: (DeliveryProgress) -> Unit): Boolean {
        if (!manifest.isFile) return false
        val installed = sha256(manifest)
        val delta = download.deltas.find { it.since == installed }
        if (delta != null && isInstalled(download, delta.archive, told)) return true
        val (method) = fetch(listOf(download.method), told)
        return hasWeightsOf(method) && isInstalled(download, download.method, told)
    }

    private suspend fun isInstalled(download: BundleDownload, archive: Archive, told: (DeliveryProgress) -> Unit): Boolean = try {
        install(download, listOf(archive), told)
        true
    } catch (_: BundleError) {
        false
    }

    private suspend fun install(download: BundleDownload, from: List<Archive>, told: (DeliveryProgress) -> Unit) =
        PersonalModel.install(fetch(from, told).map { it.path }, bundle.path, download.trust)

    private suspend fun fetch(wanted: List<Archive>, told: (DeliveryProgress) -> Unit): List<File> {
        val all = wanted.sumOf { it.bytes }
        var before = 0L
        return wanted.map { archive ->
            ResumedFile(archives, archive, client).fetch { told(DeliveryProgress(before + it, all)) }.also { before += archive.bytes }
        }
    }

    private fun hasWeightsOf(method: File): Boolean = try {
        val there = manifest.inputStream().use(::read)
        val wanted = ZipFile(method).use { zip -> zip.getInputStream(zip.getEntry(MANIFEST)).use(::read) }
        wanted.weights.all { it.file in wanted.files && wanted.files[it.file] == there.files[it.file] }
    } catch (_: SerializationException) {  // of another version: what install says about it counts
        false
    }

    /** What earlier downloads left on their way goes. */
    private fun keepOnly(download: BundleDownload) {
        val known = (download.deltas.map { it.archive } + download.method + download.weights).map { it.sha256 }
        archives.listFiles().orEmpty().filterNot { it.nameWithoutExtension in known }.forEach { it.delete() }
    }

    /** What is read here of a manifest. */
    @Serializable
    private class Listed(val files: Map<String, JsonElement>, val weights: List<Weight>)

    @Serializable
    private class Weight(val file: String)

    private companion object {
        const val MANIFEST = "manifest.json"
        val json = Json { ignoreUnknownKeys = true }

        @OptIn(ExperimentalSerializationApi::class)
        fun read(stream: InputStream): Listed = json.decodeFromStream(Listed.serializer(), stream)
    }
}
