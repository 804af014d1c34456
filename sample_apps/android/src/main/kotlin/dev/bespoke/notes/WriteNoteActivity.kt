// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.notes

import android.os.Bundle
import android.view.View
import android.widget.EditText
import androidx.core.widget.doAfterTextChanged

/** One new note. */
class WriteNoteActivity : Screen(R.layout.write, R.string.write_title) {
    override fun onCreate(savedInstanceState: Bundle?) {
        super.onCreate(savedInstanceState)
        val text = findViewById<EditText>(R.id.text)
        val save = findViewById<View>(R.id.save)
        save.isEnabled = text.text.isNotBlank()
        text.doAfterTextChanged { save.isEnabled = !it.isNullOrBlank() }
        save.setOnClickListener {
            val written = text.text.toString().trim()
            parts.begin { parts.learner.write(written) }  // nobody waits for the model to be opened
            finish()
        }
        text.requestFocus()
    }
}
