// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.notes

import android.content.Context
import android.util.Log
import dev.bespoke.DataError
import dev.bespoke.Example
import dev.bespoke.Prompt
import dev.bespoke.Version
import dev.bespoke.android.Learning
import dev.bespoke.android.LearningStatus
import dev.bespoke.android.Personalization
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.withContext

/** Learning from the notes: only while the user wants it, and never from a note that is gone. */
class Learner(
    private val context: Context,
    private val learning: Learning,
    private val notebook: NotebookFile,
    private val models: Models,
    private val prompt: (String) -> Prompt,
) {
    val status: Flow<LearningStatus> get() = Personalization.status(context, learning)

    suspend fun switchOn() {
        notebook.change { it.copy(learns = true, hasTaught = true) }
        try {
            follow()  // before anything is scheduled: a slice without examples would rest for hours
            withContext(Dispatchers.IO) { Personalization.schedule(context, learning) }
        } catch (problem: Exception) {
            notebook.change { it.copy(learns = false) }
            throw problem
        }
    }

    suspend fun switchOff() {
        notebook.change { it.copy(learns = false) }
        withContext(Dispatchers.IO) { Personalization.cancel(context) }
    }

    suspend fun learnNow() {
        follow()
        withContext(Dispatchers.IO) { Personalization.learnNow(context, learning) }
    }

    suspend fun write(text: String) {
        notebook.change { it.copy(notes = listOf(Note(text)) + it.notes) }
        follow()
    }

    /** The better answer is a note like the others. It takes the place of an earlier correction of the same question. */
    suspend fun correct(answer: Corrected, better: String) {
        notebook.change { book ->
            book.copy(notes = listOf(Note(better, corrects = answer)) + book.notes.filter { it.corrects?.question != answer.question })
        }
        follow()
    }

    suspend fun delete(id: String) {
        notebook.change { book -> book.copy(notes = book.notes.filter { it.id != id }) }
        follow()
    }

    /** The model's examples become the notes of now. What an end of the process left undone, the next call does. */
    suspend fun follow() {
        val book = notebook.read()
        if (!book.hasTaught) return
        models.users { model ->
            val taught = model.examples.list().map { it.id }.toSet()
            for (id in taught - book.notes.map { it.id }.toSet()) model.examples.forget(id)
            if (!book.learns) return@users
            for (note in book.notes.asReversed()) {
                if (note.id in taught) continue
                try {
                    model.examples.add(example(note), note.id, mustKnow = true)  // what somebody noted down is to be known
                } catch (problem: DataError) {
                    Log.i("Notes", "a note that nothing can be learned from: ${problem.expected}")  // for instance a single letter
                }
            }
        }
    }

    /** A correction is a pair of answers. A method that learns no preferences learns the better one alone. */
    private fun example(note: Note): Example {
        val corrected = note.corrects ?: return Example.Text(note.text)
        return when (val asked = prompt(corrected.question)) {
            is Prompt.Messages -> Example.Correction(asked.messages, note.text, corrected.answer)
            is Prompt.Text -> {
                val gap = corrected.answer.takeWhile(Char::isWhitespace)  // between the text and the words that continue it
                Example.Preference(asked.text, gap + note.text, corrected.answer)
            }
            is Prompt.Tokens -> error("a question is words")
        }
    }

    suspend fun versions(): List<Version> = if (notebook.read().hasTaught) models.users { it.versions() } else emptyList()

    suspend fun rollBack() {
        models.users { it.rollback() }
    }

    /** The notes themselves stay. */
    suspend fun forgetEverything() {
        notebook.change { it.copy(learns = false) }
        models.closed { Personalization.forgetEverything(context, learning) }
        notebook.change { it.copy(hasTaught = false) }
    }
}
