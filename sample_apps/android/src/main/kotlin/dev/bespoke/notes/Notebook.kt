// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.notes

import android.util.AtomicFile
import java.io.File
import java.io.FileNotFoundException
import java.util.UUID
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.flow.MutableStateFlow
import kotlinx.coroutines.flow.StateFlow
import kotlinx.coroutines.sync.Mutex
import kotlinx.coroutines.sync.withLock
import kotlinx.coroutines.withContext
import kotlinx.serialization.Serializable
import kotlinx.serialization.json.Json

/** @property corrects the answer that [text] is better than; null: an ordinary note */
@Serializable
data class Note(val text: String, val id: String = UUID.randomUUID().toString(), val corrects: Corrected? = null)

/** An answer of the assistant that its user has corrected. */
@Serializable
data class Corrected(val question: String, val answer: String)

/**
 * What the user wrote and decided.
 *
 * @property notes the newest first
 * @property learns the user wants new notes to be learned
 * @property hasTaught notes were given to the model, and nobody had it forget everything since
 */
@Serializable
data class Notebook(val notes: List<Note> = emptyList(), val learns: Boolean = false, val hasTaught: Boolean = false)

/** [Notebook] in a file that is replaced whole. */
class NotebookFile(file: File) {
    private val file = AtomicFile(file)
    private val alone = Mutex()
    private val known = MutableStateFlow<Notebook?>(null)

    /** Null until it was read. */
    val now: StateFlow<Notebook?> = known

    suspend fun read(): Notebook = alone.withLock { loaded() }

    suspend fun change(to: (Notebook) -> Notebook): Notebook = alone.withLock {
        val changed = to(loaded())
        withContext(Dispatchers.IO) {
            val stream = file.startWrite()
            try {
                stream.write(Json.encodeToString(Notebook.serializer(), changed).toByteArray())
                file.finishWrite(stream)
            } catch (problem: Throwable) {
                file.failWrite(stream)
                throw problem
            }
        }
        known.value = changed
        changed
    }

    private suspend fun loaded(): Notebook = known.value ?: withContext(Dispatchers.IO) {
        try {
            Json.decodeFromString(Notebook.serializer(), file.readFully().decodeToString())
        } catch (_: FileNotFoundException) {
            Notebook()
        }
    }.also { known.value = it }
}
