// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.notes

import dev.bespoke.Generation
import dev.bespoke.PersonalModel
import dev.bespoke.Prompt
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.flow

/** @property text as far as it has come; null: it has not begun */
data class Answer(val text: String? = null, val isWhole: Boolean = false)

/**
 * The same question answered twice.
 *
 * @property before by the model as the app came
 * @property after with what was learned
 * @property learned null: not known yet
 */
data class Answers(val before: Answer = Answer(), val after: Answer = Answer(), val learned: Boolean? = null)

class Assistant(private val notebook: NotebookFile, private val models: Models, private val prompt: (String) -> Prompt) {
    /** One after the other: two models that compute at once would need twice the memory, and neither would be done sooner. */
    fun ask(question: String): Flow<Answers> = flow {
        var answers = Answers()
        models.untaught { model ->
            answered(model, question) { answers = answers.copy(before = it); emit(answers) }
        }
        if (notebook.read().hasTaught) {
            models.users { model ->
                answers = answers.copy(learned = model.versions().isNotEmpty())
                answered(model, question) { answers = answers.copy(after = it); emit(answers) }
            }
        } else {
            emit(answers.copy(after = answers.before, learned = false))
        }
    }

    private suspend fun answered(model: PersonalModel, question: String, tell: suspend (Answer) -> Unit) {
        var text = ""
        tell(Answer(text))
        model.generate(prompt(question), GENERATION).collect { piece ->
            text += piece
            tell(Answer(text))
        }
        tell(Answer(text, isWhole = true))
    }

    private companion object {
        val GENERATION = Generation(maxTokens = 80)  // the likeliest words: what differs is what was learned, and not chance
    }
}
