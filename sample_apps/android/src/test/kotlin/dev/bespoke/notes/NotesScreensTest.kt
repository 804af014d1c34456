// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.notes

import android.app.Activity
import android.app.Dialog
import android.os.Looper
import android.view.View
import android.widget.ScrollView
import androidx.recyclerview.widget.RecyclerView
import dev.bespoke.RefusedBecause
import dev.bespoke.android.LearningStatus
import dev.bespoke.android.Pause
import kotlinx.coroutines.flow.first
import org.junit.After
import org.junit.Assert.assertEquals
import org.junit.Test
import org.junit.runner.RunWith
import org.robolectric.ParameterizedRobolectricTestRunner
import org.robolectric.RuntimeEnvironment
import org.robolectric.Shadows.shadowOf

/**
 * Every screen in every state: light and dark, in both languages, with the usual font and with one twice as large. Each two of these meet;
 * with BESPOKE_FULL=1 all three do.
 */
@RunWith(ParameterizedRobolectricTestRunner::class)
class NotesScreensTest(private val language: String, private val night: String, private val scale: Float) {
    private val driver = Driver()
    private val found = mutableListOf<String>()
    private val variant = listOfNotNull(language, if (night == "night") "dark" else "light", "large".takeIf { scale > 1 }).joinToString("_")

    @After
    fun leave() = driver.leave()

    @Test
    fun `in every screen all words can be read, and every control has a name`() {
        RuntimeEnvironment.setQualifiers("+$language-$night")
        RuntimeEnvironment.setFontScale(scale)
        empty()
        driver.writeNotes()
        beforeLearning()
        learned()
        afterLearning()
        assertEquals("", found.distinct().joinToString("\n"))
    }

    private fun empty() {
        val notes = driver.open<NotesActivity>()
        driver.await("the empty screen") { driver.shows(notes, R.id.empty) && driver.text(notes, R.id.learning).isNotEmpty() }
        look("notes_empty", notes)
        look("write", driver.open<WriteNoteActivity>().also { driver.type(it, R.id.text, "Bread, milk, a red pencil.") })
    }

    private fun beforeLearning() {
        val notes = driver.open<NotesActivity>()
        val rows = notes.findViewById<RecyclerView>(R.id.list)
        driver.await("the notes") { rows.childCount > 0 && driver.text(notes, R.id.learning).isNotEmpty() }
        look("notes", notes)
        driver.touch(rows.getChildAt(0).findViewById<View>(R.id.delete))
        look("notes_delete", driver.dialog())
        val learning = driver.open<LearningActivity>()
        driver.await("off") { driver.shows(learning, R.id.explanation) }
        look("learning_off", learning)
        look("ask", driver.open<AskActivity>())
    }

    private fun learned() {
        driver.app.charging(true)
        driver.asked { it.learner.switchOn() }
        driver.await("the end of a run") { driver.asked { it.learner.status.first() }.last?.accepted != null }
        driver.app.charging(false)
    }

    private fun afterLearning() {
        val learning = driver.open<LearningActivity>()
        driver.await("on") { driver.shows(learning, R.id.switch_off) }
        look("learning_done", learning)
        for ((name, status) in STATES) {
            learning.show(status, Notebook(List(8) { Note("") }, learns = true, hasTaught = true))
            look("learning_$name", learning)
        }
        val versions = driver.open<VersionsActivity>()
        driver.await("the versions") { driver.shows(versions, R.id.forget) }
        look("versions", versions)
        for ((name, id) in listOf("roll_back" to R.id.roll_back, "forget" to R.id.forget)) {
            if (!driver.shows(versions, id)) continue
            driver.touch(versions, id)
            look("versions_$name", driver.dialog())
            driver.dialog().dismiss()
        }
        val ask = driver.open<AskActivity>()
        driver.type(ask, R.id.question, "Once upon a time there was a small dog")
        driver.touch(ask, R.id.go)
        driver.await("both answers") { ask.findViewById<View>(R.id.go).isEnabled && driver.text(ask, R.id.after).length > 2 }
        look("ask_answered", ask)
    }

    private fun look(name: String, screen: Activity) {
        look(name, screen.window.decorView)
        screen.window.decorView.shown().firstOrNull { it is ScrollView && it.canScrollVertically(1) }?.let { scroll ->
            var page = 1
            while (scroll.canScrollVertically(1)) {
                scroll.scrollBy(0, scroll.height * 2 / 3)
                look("${name}_${++page}", screen.window.decorView)
            }
            scroll.scrollTo(0, 0)
        }
    }

    private fun look(name: String, dialog: Dialog) = look(name, checkNotNull(dialog.window).decorView)

    private fun look(name: String, window: View) {
        shadowOf(Looper.getMainLooper()).idle()
        found += findings(window).map { "$name $variant: $it" }
        Picture(window).save("${name}_$variant")
    }

    companion object {
        /** One test each: colours that one of them has loaded stay in Robolectric's cache for the test. */
        @JvmStatic
        @ParameterizedRobolectricTestRunner.Parameters(name = "{0} {1} {2}")
        fun variants(): List<Array<Any>> {
            val all = listOf("en", "de").flatMap { language ->
                listOf("notnight", "night").flatMap { night -> listOf(1f, 2f).map { Triple(language, night, it) } }
            }
            val few = all.filter { (language, night, scale) -> (language == "de") xor (night == "night") xor (scale > 1) }
            return (if (System.getenv("BESPOKE_FULL") == "1") all else few).map { (language, night, scale) -> arrayOf(language, night, scale) }
        }

        private val SLICE = NotesStatusWordsTest.SLICE
        private val STATES = mapOf(
            "waiting" to LearningStatus.Waiting(null),
            "opening" to LearningStatus.Running(null, 0, 0, null, 0, null),
            "running" to LearningStatus.Running(SLICE, 174, 300, 2.79, 318_000_000, 350_000_000),
            "accepted" to LearningStatus.Waiting(SLICE.copy(totalSteps = 300, accepted = true, gain = 0.12)),
            "refused" to LearningStatus.Waiting(SLICE.copy(totalSteps = 300, accepted = false, refusedBecause = RefusedBecause.LUCK)),
            "paused" to LearningStatus.Waiting(SLICE, Pause.HOT),
            "error" to LearningStatus.Waiting(SLICE, Pause.ERROR, "The state '/data/app/user': got no such version; expected version 3."),
            "failed" to LearningStatus.Off(SLICE, "The bundle '/data/app/chat.bundle': got a manifest of version 9; expected one up to 2."),
        )
    }
}
