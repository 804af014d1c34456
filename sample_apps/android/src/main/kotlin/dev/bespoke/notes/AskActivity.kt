// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.notes

import android.os.Bundle
import android.view.View
import android.view.ViewGroup.LayoutParams.MATCH_PARENT
import android.view.ViewGroup.LayoutParams.WRAP_CONTENT
import android.widget.EditText
import android.widget.LinearLayout
import android.widget.TextView
import androidx.core.widget.doAfterTextChanged
import androidx.lifecycle.ViewModelProvider
import androidx.lifecycle.viewmodel.initializer
import androidx.lifecycle.viewmodel.viewModelFactory

/** One question, answered as the app came and with what was learned, side by side. The user may correct the second answer. */
class AskActivity : Screen(R.layout.ask, R.string.ask_title) {
    private val asked by lazy {
        ViewModelProvider(this, viewModelFactory { initializer { AskViewModel(parts.assistant) } })[AskViewModel::class.java]
    }

    private val better by lazy { findViewById<EditText>(R.id.better) }
    private var offered: Corrected? = null

    override fun onCreate(savedInstanceState: Bundle?) {
        super.onCreate(savedInstanceState)
        val question = findViewById<EditText>(R.id.question)
        findViewById<View>(R.id.go).setOnClickListener { asked.ask(question.text.toString()) }
        val save = findViewById<View>(R.id.save)
        better.doAfterTextChanged { save.isEnabled = isBetter() }
        save.setOnClickListener { correct() }
        if (hasLargeFont) stackAnswers()
        follow(asked.now, ::show)
    }

    private fun show(now: Asked) {
        findViewById<View>(R.id.go).isEnabled = !now.isAsking
        val answers = now.answers
        findViewById<View>(R.id.answers).visibility = if (answers == null) View.GONE else View.VISIBLE
        answers?.let {
            findViewById<TextView>(R.id.before).text = words(it.before)
            findViewById<TextView>(R.id.after).text = words(it.after)
        }
        val hint = when {
            now.problem != null -> words(now.problem)
            now.isAsking -> getString(R.string.working)
            now.isCorrected -> getString(R.string.ask_corrected)
            answers?.learned == false -> getString(R.string.ask_nothing_learned)
            else -> null
        }
        findViewById<TextView>(R.id.hint).run {
            text = hint
            visibility = if (hint == null) View.GONE else View.VISIBLE
        }
        offer(now.correctable)
    }

    /** The answer as a text to edit. What the user has typed into it stays, also when the screen turns. */
    private fun offer(answer: Corrected?) {
        findViewById<View>(R.id.correction).visibility = if (answer == null) View.GONE else View.VISIBLE
        if (answer == offered) return
        offered = answer
        better.setText(answer?.answer?.trim())
    }

    private fun isBetter() = better.text.isNotBlank() && better.text.trim().toString() != offered?.answer?.trim()

    private fun correct() {
        val answer = offered ?: return
        val words = better.text.toString().trim()
        act({ parts.learner.correct(answer, words) }, then = { asked.corrected() })
    }

    private fun words(answer: Answer): String = when {
        !answer.text.isNullOrBlank() -> answer.text.trim()
        answer.isWhole -> getString(R.string.ask_empty)
        else -> getString(R.string.ask_waiting)
    }

    private fun stackAnswers() {
        val answers = findViewById<LinearLayout>(R.id.answers)
        answers.orientation = LinearLayout.VERTICAL
        for (at in 0 until answers.childCount) {
            val params = answers.getChildAt(at).layoutParams as LinearLayout.LayoutParams
            params.weight = 0f
            params.width = MATCH_PARENT
            params.height = WRAP_CONTENT
        }
    }
}
