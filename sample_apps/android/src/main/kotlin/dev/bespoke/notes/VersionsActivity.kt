// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.notes

import android.os.Bundle
import android.text.format.DateUtils
import android.view.View
import android.widget.LinearLayout
import android.widget.TextView
import dev.bespoke.Version
import java.time.OffsetDateTime
import kotlinx.coroutines.flow.combine
import kotlinx.coroutines.flow.distinctUntilChanged
import kotlinx.coroutines.flow.map

/** What was accepted, and the ways back: one version, or to the beginning. */
class VersionsActivity : Screen(R.layout.versions, R.string.versions_title) {
    override fun onCreate(savedInstanceState: Bundle?) {
        super.onCreate(savedInstanceState)
        findViewById<View>(R.id.roll_back).setOnClickListener {
            confirm(R.string.roll_back_title, R.string.roll_back_text, R.string.roll_back_yes) {
                act({ parts.learner.rollBack() }, then = { load() })
            }
        }
        findViewById<View>(R.id.forget).setOnClickListener {
            confirm(R.string.forget_title, R.string.forget_text, R.string.forget_yes) {
                say(getString(R.string.working))
                act({ parts.learner.forgetEverything() })
            }
        }
        // A version may come, and a forgetting end, while somebody looks.
        val changes = combine(parts.learner.status.map { it.last }, parts.notebook.now.map { it?.hasTaught }, ::Pair)
        follow(changes.distinctUntilChanged()) { load() }
    }

    private fun load() {
        var versions = emptyList<Version>()
        var hasTaught = false
        act({
            versions = parts.learner.versions()
            hasTaught = parts.notebook.read().hasTaught
        }, then = { show(versions, hasTaught) })
    }

    private fun show(versions: List<Version>, hasTaught: Boolean) {
        val list = findViewById<LinearLayout>(R.id.list)
        list.removeAllViews()
        for (version in versions.asReversed()) {
            val row = layoutInflater.inflate(R.layout.version, list, false)
            val name = if (version == versions.last()) R.string.version_answers else R.string.version_name
            row.findViewById<TextView>(R.id.name).text = getString(name, version.id)
            row.findViewById<TextView>(R.id.detail).text = getString(R.string.version_detail, date(version.acceptedAt), version.step)
            list.addView(row)
        }
        say(
            when {
                !hasTaught -> getString(R.string.forgotten)
                versions.isEmpty() -> getString(R.string.versions_none)
                else -> null
            },
        )
        findViewById<View>(R.id.roll_back).visibility = if (versions.isEmpty()) View.GONE else View.VISIBLE
        findViewById<View>(R.id.forget).visibility = if (hasTaught) View.VISIBLE else View.GONE
    }

    private fun say(words: String?) = findViewById<TextView>(R.id.message).run {
        text = words
        visibility = if (words == null) View.GONE else View.VISIBLE
    }

    private fun date(iso: String): String {
        val at = OffsetDateTime.parse(iso).toInstant().toEpochMilli()
        return DateUtils.formatDateTime(this, at, DateUtils.FORMAT_SHOW_DATE or DateUtils.FORMAT_SHOW_YEAR)
    }
}
