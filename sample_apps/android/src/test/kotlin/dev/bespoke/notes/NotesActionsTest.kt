// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.notes

import android.view.View
import android.widget.LinearLayout
import androidx.recyclerview.widget.RecyclerView
import dev.bespoke.android.HotPowerManager
import dev.bespoke.android.SLOW
import kotlinx.coroutines.flow.first
import org.junit.After
import org.junit.Assert.assertEquals
import org.junit.Assert.assertFalse
import org.junit.Assert.assertNotEquals
import org.junit.Assert.assertTrue
import org.junit.Test
import org.junit.runner.RunWith
import org.robolectric.RobolectricTestRunner

/** Everything that can be touched, with the real WorkManager and the real device core. */
@RunWith(RobolectricTestRunner::class)
class NotesActionsTest {
    private val driver = Driver()
    private val app = driver.app
    private val list get() = driver.asked { it.notebook.read().notes.map(Note::text) }

    @After
    fun leave() = driver.leave()

    @Test
    fun `a note is written, shown and deleted`() {
        val notes = driver.open<NotesActivity>()
        driver.await("the empty screen") { driver.shows(notes, R.id.empty) }
        driver.touch(notes, R.id.write)
        val writing = driver.follow<WriteNoteActivity>()
        assertFalse("nothing to save", writing.findViewById<View>(R.id.save).isEnabled)
        driver.type(writing, R.id.text, " Bread, milk, a red pencil. ")
        driver.touch(writing, R.id.save)
        assertTrue(writing.isFinishing)
        val rows = notes.findViewById<RecyclerView>(R.id.list)
        driver.await("the note") { rows.childCount == 1 }
        assertEquals(listOf("Bread, milk, a red pencil."), list)
        assertFalse(driver.shows(notes, R.id.empty))

        driver.touch(rows.getChildAt(0).findViewById<View>(R.id.delete))
        driver.yes()
        driver.await("no note") { rows.childCount == 0 && driver.shows(notes, R.id.empty) }
        assertEquals(emptyList<String>(), list)
        assertFalse("no model was made for it", driver.asked { it.notebook.read().hasTaught })
    }

    @Test
    fun `from the switch to an answer with what was learned, and back`() {
        driver.writeNotes()
        val screen = driver.open<LearningActivity>()
        driver.await("off") { driver.shows(screen, R.id.explanation) }
        driver.touch(screen, R.id.switch_on)
        driver.await("waiting") { driver.text(screen, R.id.status_title) == "Learning: waiting for the charger" }
        assertTrue(driver.shows(screen, R.id.switch_off) && !driver.shows(screen, R.id.explanation))
        HotPowerManager.headroom = SLOW
        app.charging(true)
        driver.await("learning") { driver.text(screen, R.id.status_text).startsWith("Step ") && driver.shows(screen, R.id.progress) }
        HotPowerManager.headroom = 0f
        driver.await("the end") { driver.text(screen, R.id.status_title).contains("done for now") }
        val last = checkNotNull(driver.asked { it.learner.status.first() }.last)
        println("LAST $last ${last.addedBytes}")
        assertTrue(driver.text(screen, R.id.last_text).startsWith(if (last.accepted == true) "Kept" else "Not kept"))
        val facts = screen.findViewById<LinearLayout>(R.id.last_facts)
        assertEquals(6, facts.childCount)

        driver.touch(screen, R.id.versions)
        val versions = driver.follow<VersionsActivity>()
        driver.await("the versions") { versions.findViewById<LinearLayout>(R.id.list).childCount == 1 }

        val ask = driver.open<AskActivity>()
        driver.type(ask, R.id.question, "Once upon")
        driver.touch(ask, R.id.go)
        driver.await("both answers") { ask.findViewById<View>(R.id.go).isEnabled && driver.text(ask, R.id.after).length > 10 }
        assertNotEquals(driver.text(ask, R.id.before), driver.text(ask, R.id.after))

        driver.touch(versions, R.id.roll_back)
        driver.yes()
        driver.await("no version") { driver.text(versions, R.id.message).startsWith("There is no version") }
        assertFalse(driver.shows(versions, R.id.roll_back))

        driver.touch(versions, R.id.forget)
        driver.yes()
        driver.await("forgotten") { driver.text(versions, R.id.message).startsWith("Everything was forgotten") }
        val book = driver.asked { it.notebook.read() }
        assertFalse(book.learns || book.hasTaught)
        assertEquals("the notes stay", NotesTestApp.NOTES.reversed(), list)
        driver.await("off") { driver.shows(screen, R.id.switch_on) && !driver.shows(screen, R.id.last) }
    }
}
