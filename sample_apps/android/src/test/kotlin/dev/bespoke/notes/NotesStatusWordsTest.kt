// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.notes

import android.content.Context
import dev.bespoke.RefusedBecause
import dev.bespoke.TrainReportStoppedBecause
import dev.bespoke.android.LastSlice
import dev.bespoke.android.LearningStatus
import dev.bespoke.android.Pause
import org.junit.Assert.assertEquals
import org.junit.Assert.assertNull
import org.junit.Assert.assertTrue
import org.junit.Test
import org.junit.runner.RunWith
import org.robolectric.RobolectricTestRunner
import org.robolectric.RuntimeEnvironment

/** What each status says, in both languages. */
@RunWith(RobolectricTestRunner::class)
class NotesStatusWordsTest {
    private val context: Context get() = RuntimeEnvironment.getApplication()
    private val words get() = StatusWords(context, restHours = 20)
    private val learning = Notebook(List(8) { Note("") }, learns = true, hasTaught = true)

    @Test
    fun `off says whether anything was learned`() {
        assertEquals("The assistant is as it came. It has not read your notes.", words.of(LearningStatus.Off(null), Notebook()).text)
        assertTrue(words.of(LearningStatus.Off(null), Notebook(hasTaught = true)).text.contains("still answers"))
    }

    @Test
    fun `waiting, done, paused and failed differ`() {
        val waiting = words.of(LearningStatus.Waiting(null), learning)
        assertEquals("waiting for the charger", waiting.title)
        assertEquals(listOf(Fact("Notes to learn from", "8")), waiting.facts)
        val done = words.of(LearningStatus.Waiting(SLICE.copy(accepted = true)), learning)
        assertEquals("done for now", done.title)
        assertTrue(done.text, done.text.contains("after 20 hours"))
        assertEquals(Pause.entries.size, Pause.entries.map { words.of(LearningStatus.Waiting(SLICE, it), learning).text }.distinct().size)
        val error = words.of(LearningStatus.Waiting(SLICE, Pause.ERROR, "no such version"), learning)
        assertEquals(listOf("8", "no such version"), error.facts.map { it.value })
        val failed = words.of(LearningStatus.Off(null, "no such file"), learning)
        assertEquals(listOf("stopped", "no such file"), listOf(failed.title, failed.facts.single().value))
    }

    @Test
    fun `learning says how far, and its memory as the limit counts it`() {
        val opening = words.of(LearningStatus.Running(null, 0, 0, null, 0, null), learning)
        assertEquals(0 to 0, opening.steps)
        val running = words.of(LearningStatus.Running(null, 174, 300, 2.789, 318_000_000, 350_000_000), learning)
        assertEquals(174 to 300, running.steps)
        assertTrue(running.text, running.text.startsWith("Step 174 of 300."))
        assertEquals(listOf("2.79", "318 MB, 350 MB allowed"), running.facts.map { it.value })
    }

    @Test
    fun `the last time says what came of it, why, and what it took`() {
        assertNull(words.last(null))
        val refused = RefusedBecause.entries.map { words.last(SLICE.copy(accepted = false, refusedBecause = it))!!.text }
        assertEquals(RefusedBecause.entries.size, refused.distinct().size)
        assertTrue(refused.all { it.startsWith("Not kept") })
        val facts = words.last(SLICE)!!.facts.associate { it.label to it.value }
        assertEquals("3.41, then 2.87", facts["Error on your notes (less is better)"])
        assertEquals("321 MB, 350 MB allowed", facts["Memory"])
        assertEquals("18 MB", facts["Written to storage"])
        assertEquals("8 min 57 s", facts["Time used"])
        assertEquals("2.5 s", words.last(SLICE.copy(seconds = 2.5))!!.facts.last().value)
    }

    @Test
    fun `German numbers have a comma`() {
        RuntimeEnvironment.setQualifiers("+de")
        val last = StatusWords(context, restHours = 1).last(SLICE.copy(accepted = true))!!
        assertTrue(last.text, last.text.startsWith("Behalten"))
        assertTrue(last.facts.any { it.value == "3,41, dann 2,87" })
    }

    companion object {
        /** Of a phone with a real model, in the size of its figures. */
        val SLICE = LastSlice(
            at = 1_770_000_000_000, run = 2, method = "mesp", steps = 120, totalSteps = 300,
            stoppedBecause = TrainReportStoppedBecause.DEADLINE, accepted = null, refusedBecause = null, gain = null,
            firstLoss = 3.41, lastLoss = 2.87, idleBytes = 91_000_000, addedBytes = 321_000_000, limitBytes = 350_000_000, plannedForBytes = 350_000_000,
            bytesWritten = 18_400_000, seconds = 537.0, isLastResort = false,
        )
    }
}
