// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.notes

import android.content.Context
import dev.bespoke.Prompt
import dev.bespoke.android.Learning
import java.io.File
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Deferred
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.SupervisorJob
import kotlinx.coroutines.async

/**
 * What the screens are made of, once for each process.
 *
 * @property learning what is learned, from which bundle
 * @property prompt how a question is put to the model: as a message, or as a text to go on with where it has no chat turns
 */
class Parts(context: Context, val learning: Learning, prompt: (String) -> Prompt) {
    private val scope = CoroutineScope(SupervisorJob() + Dispatchers.Default)

    val notebook = NotebookFile(File(context.noBackupFilesDir, "notebook.json"))
    private val models = Models(context, learning)
    val learner = Learner(context, learning, notebook, models, prompt)
    val assistant = Assistant(notebook, models, prompt)

    /** For what must be done to its end, whatever happens to the screen that asked for it; who awaits it gets its error. */
    fun begin(block: suspend () -> Unit): Deferred<Unit> = scope.async { block() }

    /** While nobody looks, the memory is the training's. */
    fun giveMemoryBack(): Deferred<Unit> = begin { models.closed {} }
}
