// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.notes

import android.content.Intent
import android.os.Bundle
import android.view.View
import android.view.ViewGroup.LayoutParams.MATCH_PARENT
import android.widget.Button
import android.widget.LinearLayout
import androidx.recyclerview.widget.RecyclerView
import kotlinx.coroutines.flow.combine
import kotlinx.coroutines.flow.filterNotNull

/** The notes, and ways to everything else. */
class NotesActivity : Screen(R.layout.notes, R.string.app_name) {
    private val words by lazy { StatusWords(this, parts.learning.restHours) }

    override fun onCreate(savedInstanceState: Bundle?) {
        super.onCreate(savedInstanceState)
        val adapter = NotesAdapter { note ->
            confirm(R.string.delete_title, R.string.delete_text, R.string.delete_yes) { act({ parts.learner.delete(note.id) }) }
        }
        findViewById<RecyclerView>(R.id.list).adapter = adapter
        findViewById<View>(R.id.write).setOnClickListener { startActivity(Intent(this, WriteNoteActivity::class.java)) }
        findViewById<View>(R.id.ask).setOnClickListener { startActivity(Intent(this, AskActivity::class.java)) }
        findViewById<View>(R.id.learning).setOnClickListener { startActivity(Intent(this, LearningActivity::class.java)) }
        if (hasLargeFont) stackActions()
        if (savedInstanceState == null) act({ parts.notebook.read(); parts.learner.follow() })

        follow(parts.notebook.now.filterNotNull()) { book ->
            adapter.submitList(book.notes)
            findViewById<View>(R.id.empty).visibility = if (book.notes.isEmpty()) View.VISIBLE else View.GONE
        }
        follow(combine(parts.learner.status, parts.notebook.now.filterNotNull(), ::Pair)) { (status, book) ->
            findViewById<Button>(R.id.learning).text = getString(R.string.learning_open, words.of(status, book).title)
        }
    }

    private fun stackActions() {
        val actions = findViewById<LinearLayout>(R.id.actions)
        actions.orientation = LinearLayout.VERTICAL
        for (id in listOf(R.id.ask, R.id.write)) findViewById<View>(id).layoutParams.width = MATCH_PARENT
    }
}
