// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.android

import android.content.Context
import android.content.res.AssetFileDescriptor
import android.content.res.AssetManager
import dev.bespoke.BundleSource
import dev.bespoke.Options
import dev.bespoke.PersonalModel
import java.io.File
import java.io.FileNotFoundException
import java.io.FileOutputStream
import java.io.IOException
import java.io.InputStream
import java.nio.file.Files
import java.nio.file.StandardCopyOption
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.currentCoroutineContext
import kotlinx.coroutines.delay
import kotlinx.coroutines.ensureActive
import kotlinx.coroutines.sync.Mutex
import kotlinx.coroutines.sync.withLock
import kotlinx.coroutines.withContext

private const val ALIGNMENT = 64L  // what the core asks of where a bundle begins in a file: it maps the weights from there

/** The user's model, by the bundle's place in the app: an asset that cannot be mapped where it lies is opened as a copy. */
internal suspend fun AppBundle.opened(context: Context, state: String): PersonalModel {
    val options = Options(trust = trust)
    val copies = AssetCopies(context)
    copies.deleteOlder()  // also where this version needs none: what is left over is as large as the bundle
    if (path != null) return PersonalModel.open(BundleSource.At(path), state, options)
    val name = checkNotNull(asset)
    val inPlace = context.assets.mappable(name)
        ?: return PersonalModel.open(BundleSource.At(copies.of(name) { context.assets.open(name) }.path), state, options)
    return inPlace.use { PersonalModel.open(BundleSource.Within(it.parcelFileDescriptor.fd, it.startOffset, it.length), state, options) }
}

/** Null where the APK compressed it, or put it where the core cannot map it, as Gradle does, which aligns to 4 bytes. */
private fun AssetManager.mappable(name: String): AssetFileDescriptor? {
    val file = try {
        openFd(name)
    } catch (_: FileNotFoundException) {  // compressed; or there is none, which is said where it is copied
        return null
    }
    if (file.startOffset % ALIGNMENT == 0L) return file
    file.close()
    return null
}

/** An asset could not be copied: the next slice may find room for it. */
internal class CopyFailed(message: String, cause: IOException) : IllegalStateException(message, cause)

/**
 * Copies of assets, one of each for a version of the app. The app's process and the training's may ask for the same one at once: one of
 * them writes, the other waits. A copy has its name once all of it is on the disk, so whatever ends before leaves none.
 */
internal class AssetCopies(private val folder: File, private val version: Long) {
    /** Beside the states, under a name that none of them can have. The system changes the version with each install and update. */
    constructor(context: Context) : this(
        File(context.noBackupFilesDir, "bespoke/assets.copied"),
        context.packageManager.getPackageInfo(context.packageName, 0).lastUpdateTime,
    )

    /** Deletes what other versions of the app have left, whole or not. */
    fun deleteOlder() {
        folder.listFiles().orEmpty().filter { it.name !in setOf(LOCK, "$version", "$version$PART") }.forEach { it.deleteRecursively() }
    }

    /** The copy of this asset; `read` opens the asset, where the copy has yet to be made. */
    suspend fun of(asset: String, read: () -> InputStream): File = withContext(Dispatchers.IO) {
        val copy = File(folder, "$version/$asset")
        if (!copy.exists()) alone.withLock { locked { if (!copy.exists()) write(copy, opened(asset, read), asset) } }
        copy
    }

    private fun opened(asset: String, read: () -> InputStream): InputStream = try {
        read()
    } catch (problem: FileNotFoundException) {
        throw IllegalStateException(
            "The asset '$asset': got no such file in the app; expected a bundle as one zip. Add it to the app's assets, or name another.",
            problem,
        )
    }

    private suspend fun write(copy: File, from: InputStream, asset: String) {
        val part = File(folder, "$version$PART")  // one at a time; that of a process that was killed is written over
        try {
            checkNotNull(copy.parentFile).mkdirs()
            from.use { FileOutputStream(part).use { to -> writeAll(from, to) } }
            Files.move(part.toPath(), copy.toPath(), StandardCopyOption.ATOMIC_MOVE)
        } catch (problem: IOException) {
            throw CopyFailed(
                "The copy of the asset '$asset': got '${problem.message}' with ${folder.usableSpace} bytes left; expected room for it. " +
                    "Make room on the device, or store the asset at a multiple of $ALIGNMENT bytes, where it needs no copy.",
                problem,
            )
        } finally {
            part.delete()
        }
    }

    private suspend fun writeAll(from: InputStream, to: FileOutputStream) {
        val buffer = ByteArray(BUFFER)
        while (true) {
            currentCoroutineContext().ensureActive()  // a slice that is stopped does not wait for the end of a large copy
            val count = from.read(buffer)
            if (count < 0) break
            to.write(buffer, 0, count)
        }
        to.fd.sync()  // before it gets its name, else a power cut could leave the name without the bytes
    }

    /** Runs alone among the processes of the app. The system ends the lock with the file, and with the process. */
    private suspend fun locked(block: suspend () -> Unit) {
        folder.mkdirs()
        FileOutputStream(File(folder, LOCK)).channel.use { channel ->
            while (channel.tryLock() == null) delay(POLL_MS)
            block()
        }
    }

    private companion object {
        const val LOCK = "lock"
        const val PART = ".part"
        const val BUFFER = 1 shl 18
        const val POLL_MS = 50L
        val alone = Mutex()  // a process has a file lock only once
    }
}
