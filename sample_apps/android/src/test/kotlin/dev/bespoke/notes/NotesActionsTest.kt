// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.notes

import android.Manifest
import android.view.View
import android.widget.LinearLayout
import android.widget.TextView
import androidx.lifecycle.ViewModelProvider
import androidx.recyclerview.widget.RecyclerView
import dev.bespoke.PersonalModel
import dev.bespoke.android.HotPowerManager
import dev.bespoke.android.Personalization
import dev.bespoke.android.SLOW
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.runBlocking
import kotlinx.serialization.json.jsonPrimitive
import org.junit.After
import org.junit.Assert.assertEquals
import org.junit.Assert.assertFalse
import org.junit.Assert.assertNotEquals
import org.junit.Assert.assertNotSame
import org.junit.Assert.assertTrue
import org.junit.Test
import org.junit.runner.RunWith
import org.robolectric.RobolectricTestRunner
import org.robolectric.Shadows.shadowOf

/** Everything that can be touched, with the real WorkManager and the real device core. */
@RunWith(RobolectricTestRunner::class)
class NotesActionsTest {
    private val driver = Driver()
    private val app = driver.app
    private val list get() = driver.asked { it.notebook.read().notes.map(Note::text) }

    @After
    fun leave() = driver.leave()

    @Test
    fun `a note is written and shown and deleted`() {
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
    fun `from the switch to an answer with what was learned and back`() {
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
        assertTrue(driver.text(screen, R.id.last_text).startsWith(if (last.accepted == true) "Kept" else "Not kept"))
        val facts = screen.findViewById<LinearLayout>(R.id.last_facts)
        assertEquals(6, facts.childCount)

        driver.touch(screen, R.id.versions)
        val versions = driver.follow<VersionsActivity>()
        driver.await("the versions") { versions.findViewById<LinearLayout>(R.id.list).childCount == 1 }

        driver.touch(screen, R.id.compare)
        val ask = driver.follow<AskActivity>()
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

    @Test
    fun `a deleted note takes along what was learned from it`() {
        learned()
        val before = driver.asked { it.learner.versions().size }
        val notes = driver.open<NotesActivity>()
        val rows = notes.findViewById<RecyclerView>(R.id.list)
        driver.await("the notes") { rows.childCount > 0 }
        driver.touch(rows.getChildAt(0).findViewById<View>(R.id.delete))
        driver.yes()
        driver.await("one note less") { list.size == NotesTestApp.NOTES.size - 1 }
        driver.await("$before versions, then none") { driver.asked { it.learner.versions() }.isEmpty() }
    }

    @Test
    fun `switched off nothing new is learned and what was learned stays`() {
        learned()
        val before = driver.asked { it.learner.versions() }
        val screen = driver.open<LearningActivity>()
        driver.await("on") { driver.shows(screen, R.id.switch_off) }
        driver.touch(screen, R.id.switch_off)
        driver.await("off") { driver.shows(screen, R.id.switch_on) && driver.shows(screen, R.id.explanation) }
        driver.await("no work") { app.work().all { it.state.isFinished } }
        assertEquals(before, driver.asked { it.learner.versions() })
        assertTrue("they can still be undone", driver.shows(screen, R.id.versions))
    }

    @Test
    fun `learn now asks for the notification and learns without the charger`() {
        driver.writeNotes()
        driver.asked { it.learner.switchOn() }
        val screen = driver.open<LearningActivity>()
        driver.await("on") { driver.shows(screen, R.id.learn_now) }
        driver.touch(screen, R.id.learn_now)
        assertEquals(listOf(Manifest.permission.POST_NOTIFICATIONS), shadowOf(screen).lastRequestedPermission.requestedPermissions.toList())
        shadowOf(app).grantPermissions(Manifest.permission.POST_NOTIFICATIONS)
        HotPowerManager.headroom = SLOW
        driver.touch(screen, R.id.learn_now)
        driver.await("learning") { driver.text(screen, R.id.status_title) == "Learning: learning" }
        assertFalse("it is at work already", driver.shows(screen, R.id.learn_now))
    }

    @Test
    fun `a pause says why`() {
        driver.writeNotes()
        app.memory(available = 1)
        app.charging(true)
        driver.asked { it.learner.switchOn() }
        val screen = driver.open<LearningActivity>()
        driver.await("a pause") { driver.text(screen, R.id.status_title) == "Learning: paused" }
        assertEquals(app.getString(R.string.pause_memory), driver.text(screen, R.id.status_text))
    }

    @Test
    fun `a problem is shown and learning stays off`() {
        app.bundle = app.bundle.copy(path = "/nowhere/chat.bundle")
        val screen = driver.open<LearningActivity>()
        driver.await("off") { driver.shows(screen, R.id.switch_on) }
        driver.touch(screen, R.id.switch_on)
        val told = driver.dialog().findViewById<TextView>(android.R.id.message).text.toString()
        assertTrue(told, told.contains("/nowhere/chat.bundle"))
        assertFalse(driver.asked { it.notebook.read() }.learns)
        assertTrue(app.work().isEmpty())
    }

    @Test
    fun `answers outlive a rotation and before anything is learned both are alike`() {
        val ask = driver.open<AskActivity>()
        driver.type(ask, R.id.question, "Once upon")
        driver.touch(ask, R.id.go)
        driver.await("both answers") { driver.text(ask, R.id.hint).startsWith("Nothing has been learned yet") }
        val answer = driver.text(ask, R.id.before)
        assertTrue(answer, answer.length > 10)
        assertEquals(answer, driver.text(ask, R.id.after))
        val turned = driver.turned<AskActivity>()
        assertNotSame(ask, turned)
        assertEquals(listOf("Once upon", answer), listOf(R.id.question, R.id.before).map { driver.text(turned, it) })
    }

    @Test
    fun `a corrected answer is a note and the pair of answers is learned`() {
        app.withTurns()
        driver.writeNotes()
        driver.asked { it.learner.switchOn() }
        val first = corrected("In the park.")
        corrected("In the pond.")
        assertEquals("the second one takes the place of the first", listOf("In the pond.") + NotesTestApp.NOTES.reversed(), list)
        val pair = opened { model -> model.examples.list().single { "rejected" in it.json }.json }
        assertEquals(listOf("In the pond.", first), listOf("chosen", "rejected").map { pair[it]!!.jsonPrimitive.content })

        val notes = driver.open<NotesActivity>()
        val rows = notes.findViewById<RecyclerView>(R.id.list)
        driver.await("the correction") { rows.childCount > 0 && words(rows).startsWith("Asked “Where is the ball?”") }
        driver.touch(rows.getChildAt(0).findViewById<View>(R.id.delete))
        driver.yes()
        driver.await("no correction") { list == NotesTestApp.NOTES.reversed() }
        driver.await("nothing of it to learn from") { opened { it.examples.count() } == NotesTestApp.NOTES.size.toLong() }
    }

    @Test
    fun `where learning is off a corrected answer waits as the notes do`() {
        corrected("In the pond.", question = "Once upon")
        assertEquals(listOf("In the pond."), list)
        assertFalse("no model was made for it", driver.asked { it.notebook.read().hasTaught })
        driver.asked { it.learner.switchOn() }
        val pair = opened { it.examples.list() }.single().json
        assertEquals(listOf("Once upon", " In the pond."), listOf("prompt", "chosen").map { pair[it]!!.jsonPrimitive.content })
    }

    /** Asks, writes a better answer over that of the model, and returns what the model had said. */
    private fun corrected(better: String, question: String = "Where is the ball?"): String {
        val ask = driver.open<AskActivity>()
        driver.type(ask, R.id.question, question)
        driver.touch(ask, R.id.go)
        driver.await("an answer to correct") { driver.shows(ask, R.id.correction) }
        assertEquals(driver.text(ask, R.id.after), driver.text(ask, R.id.better))
        assertFalse("nothing was changed", ask.findViewById<View>(R.id.save).isEnabled)
        val answer = checkNotNull(ViewModelProvider(ask)[AskViewModel::class.java].now.value.correctable).answer
        driver.type(ask, R.id.better, better)
        val turned = driver.turned<AskActivity>()
        driver.await("what was typed") { driver.text(turned, R.id.better) == better && driver.shows(turned, R.id.save) }
        driver.touch(turned, R.id.save)
        driver.await("saved") { driver.text(turned, R.id.hint).startsWith("Saved with your notes") && !driver.shows(turned, R.id.correction) }
        return answer
    }

    private fun words(rows: RecyclerView) = rows.getChildAt(0).findViewById<TextView>(R.id.text).text.toString()

    private fun <T> opened(block: suspend (PersonalModel) -> T): T =
        runBlocking { Personalization.open(app, app.parts.learning).use { block(it) } }

    private fun learned() {
        driver.writeNotes()
        app.charging(true)
        driver.asked { it.learner.switchOn() }
        driver.await("the end of a run") { driver.asked { it.learner.status.first() }.last?.accepted != null }
    }
}
