// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.federation

import java.io.File
import java.io.FileOutputStream
import java.nio.channels.FileChannel
import java.nio.file.Files
import java.nio.file.StandardCopyOption
import java.nio.file.StandardOpenOption

/**
 * A small text in a file that is replaced whole: what was written is on the disk when [write] returns, and a process that is killed or a
 * battery that ends leaves the old text or the new one. [alone] keeps other threads and other processes out.
 */
internal class DurableFile(private val file: File) {
    private val part = File("${file.path}.part")
    private val lock = File("${file.path}.lock")

    fun read(): String? = file.takeIf { it.isFile }?.readText()

    fun write(text: String) {
        FileOutputStream(part).use { out ->
            out.write(text.toByteArray())
            out.fd.sync()
        }
        Files.move(part.toPath(), file.toPath(), StandardCopyOption.ATOMIC_MOVE)
        syncFolder()
    }

    fun delete() {
        part.delete()
        file.delete()
        syncFolder()
    }

    /** The system ends the lock with the file, and with the process. */
    fun <T> alone(block: () -> T): T = synchronized(inThisProcess) {  // a process has a file lock only once
        Files.createDirectories(folder.toPath())
        FileOutputStream(lock).channel.use { channel -> channel.lock().use { block() } }
    }

    /** The name too is on the disk then. */
    private fun syncFolder() = FileChannel.open(folder.toPath(), StandardOpenOption.READ).use { it.force(true) }

    private val folder get() = checkNotNull(file.absoluteFile.parentFile)

    private companion object {
        val inThisProcess = Any()
    }
}
