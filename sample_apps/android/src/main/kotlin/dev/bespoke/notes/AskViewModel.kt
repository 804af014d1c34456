// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.notes

import androidx.lifecycle.ViewModel
import androidx.lifecycle.viewModelScope
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.flow.MutableStateFlow
import kotlinx.coroutines.flow.StateFlow
import kotlinx.coroutines.flow.update
import kotlinx.coroutines.launch

/**
 * @property answers null: nobody has asked yet
 * @property isCorrected the user has written a better answer
 */
data class Asked(
    val question: String = "",
    val answers: Answers? = null,
    val isAsking: Boolean = false,
    val problem: Throwable? = null,
    val isCorrected: Boolean = false,
) {
    /** The answer of today, once it is whole and as long as nobody has corrected it. */
    val correctable: Corrected?
        get() = answers?.after?.takeIf { it.isWhole && !it.text.isNullOrBlank() && !isAsking && !isCorrected }
            ?.let { Corrected(question, it.text!!) }
}

/** A question and its two answers, which outlive a rotation. */
class AskViewModel(private val assistant: Assistant) : ViewModel() {
    private val asked = MutableStateFlow(Asked())
    val now: StateFlow<Asked> = asked

    fun ask(question: String) {
        if (asked.value.isAsking || question.isBlank()) return
        asked.value = Asked(question.trim(), Answers(), isAsking = true)
        viewModelScope.launch {
            try {
                assistant.ask(question.trim()).collect { answers -> asked.update { it.copy(answers = answers) } }
                asked.update { it.copy(isAsking = false) }
            } catch (left: CancellationException) {
                throw left
            } catch (problem: Exception) {
                asked.update { it.copy(isAsking = false, problem = problem) }
            }
        }
    }

    fun corrected() = asked.update { it.copy(isCorrected = true) }
}
