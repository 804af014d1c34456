// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.notes

import androidx.lifecycle.ViewModel
import androidx.lifecycle.viewModelScope
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.flow.MutableStateFlow
import kotlinx.coroutines.flow.StateFlow
import kotlinx.coroutines.flow.update
import kotlinx.coroutines.launch

/** @property answers null: nobody has asked yet */
data class Asked(val answers: Answers? = null, val isAsking: Boolean = false, val problem: Throwable? = null)

/** A question and its two answers, which outlive a rotation. */
class AskViewModel(private val assistant: Assistant) : ViewModel() {
    private val asked = MutableStateFlow(Asked())
    val now: StateFlow<Asked> = asked

    fun ask(question: String) {
        if (asked.value.isAsking || question.isBlank()) return
        asked.value = Asked(Answers(), isAsking = true)
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
}
