// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.notes

import android.app.Application
import androidx.lifecycle.AndroidViewModel
import androidx.lifecycle.viewModelScope
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.flow.MutableStateFlow
import kotlinx.coroutines.flow.StateFlow
import kotlinx.coroutines.flow.update
import kotlinx.coroutines.launch

/** @property answers null: nobody has asked yet */
data class Asked(val answers: Answers? = null, val isAsking: Boolean = false, val problem: Throwable? = null)

/** A question and its two answers, which outlive a rotation. */
class AskViewModel(application: Application) : AndroidViewModel(application) {
    private val asked = MutableStateFlow(Asked())
    val now: StateFlow<Asked> = asked

    fun ask(question: String) {
        if (asked.value.isAsking || question.isBlank()) return
        asked.value = Asked(Answers(), isAsking = true)
        viewModelScope.launch {
            try {
                val answering = getApplication<Application>().parts.assistant.ask(question.trim())
                answering.collect { answers -> asked.update { it.copy(answers = answers) } }
                asked.update { it.copy(isAsking = false) }
            } catch (left: CancellationException) {
                throw left
            } catch (problem: Exception) {
                asked.update { it.copy(isAsking = false, problem = problem) }
            }
        }
    }
}
