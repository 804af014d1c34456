// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.notes

import android.Manifest
import android.content.Intent
import android.content.pm.PackageManager
import android.os.Build
import android.os.Bundle
import android.view.View
import android.widget.LinearLayout
import android.widget.TextView
import androidx.activity.result.contract.ActivityResultContracts.RequestPermission
import com.google.android.material.progressindicator.LinearProgressIndicator
import dev.bespoke.android.LearningStatus
import kotlinx.coroutines.flow.combine
import kotlinx.coroutines.flow.filterNotNull

/** What learning is, the switch, and where it is now. */
class LearningActivity : Screen(R.layout.learning, R.string.learning_title) {
    private val words by lazy { StatusWords(this, parts.learning.restHours) }

    /** It learns also where the user wants no notifications: Android shows it in its list of running apps then. */
    private val notifications = registerForActivityResult(RequestPermission()) { act({ parts.learner.learnNow() }) }

    override fun onCreate(savedInstanceState: Bundle?) {
        super.onCreate(savedInstanceState)
        on(R.id.switch_on) { act({ parts.learner.switchOn() }) }
        on(R.id.switch_off) { act({ parts.learner.switchOff() }) }
        on(R.id.versions) { startActivity(Intent(this, VersionsActivity::class.java)) }
        on(R.id.compare) { startActivity(Intent(this, AskActivity::class.java)) }
        on(R.id.learn_now) { learnNow() }
        follow(combine(parts.learner.status, parts.notebook.now.filterNotNull(), ::Pair)) { (status, book) -> show(status, book) }
        act({ parts.notebook.read() })
    }

    /** Also for a status that nobody can bring about in a test. */
    internal fun show(status: LearningStatus, book: Notebook) {
        val said = words.of(status, book)
        card(R.id.status_title, R.id.status_text, R.id.status_facts, said.copy(title = getString(R.string.learning_open, said.title)))
        bar(said)
        val last = words.last(status.last.takeIf { book.hasTaught })  // forgetting changes no work, so the status does not tell of it
        visible(R.id.last, last != null)
        last?.let { card(R.id.last_title, R.id.last_text, R.id.last_facts, it) }
        visible(R.id.compare, last != null && status.last?.accepted == true)
        visible(R.id.explanation, !book.learns)
        visible(R.id.switch_on, !book.learns)
        visible(R.id.switch_off, book.learns)
        val canBegin = book.learns && status !is LearningStatus.Running
        visible(R.id.learn_now, canBegin)
        visible(R.id.learn_now_about, canBegin)
        visible(R.id.versions, book.hasTaught)
    }

    private fun card(title: Int, text: Int, facts: Int, said: Said) {
        findViewById<TextView>(title).text = said.title
        findViewById<TextView>(text).text = said.text
        val rows = findViewById<LinearLayout>(facts)
        while (rows.childCount > said.facts.size) rows.removeViewAt(rows.childCount - 1)
        while (rows.childCount < said.facts.size) layoutInflater.inflate(R.layout.fact, rows)
        said.facts.forEachIndexed { at, fact ->
            rows.getChildAt(at).findViewById<TextView>(R.id.label).text = fact.label
            rows.getChildAt(at).findViewById<TextView>(R.id.value).text = fact.value
        }
    }

    private fun bar(said: Said) {
        val bar = findViewById<LinearProgressIndicator>(R.id.progress)
        visible(R.id.progress, said.steps != null)
        val (step, steps) = said.steps ?: return
        bar.contentDescription = getString(R.string.progress_label, step, steps)
        bar.max = steps.coerceAtLeast(1)
        bar.progress = step
    }

    private fun learnNow() {
        val permission = Manifest.permission.POST_NOTIFICATIONS
        if (Build.VERSION.SDK_INT < Build.VERSION_CODES.TIRAMISU || checkSelfPermission(permission) == PackageManager.PERMISSION_GRANTED) {
            act({ parts.learner.learnNow() })
        } else {
            notifications.launch(permission)
        }
    }

    private fun on(id: Int, action: () -> Unit) = findViewById<View>(id).setOnClickListener { action() }

    private fun visible(id: Int, yes: Boolean) {
        findViewById<View>(id).visibility = if (yes) View.VISIBLE else View.GONE
    }
}
