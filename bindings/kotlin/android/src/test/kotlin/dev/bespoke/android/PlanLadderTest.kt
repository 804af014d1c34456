// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.android

import dev.bespoke.PlannedTraining
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.assertThrows

class PlanLadderTest {
    private val mesp = listOf(200L, 120, 100, 80).map { PlannedTraining("mesp", it, it, false) }
    private val mezo = listOf(200L, 120, 100, 80).map { PlannedTraining("mezo", it, it / 2, true) }

    private fun kills(number: Int) = (1..number).fold(PlanLadder()) { ladder, _ -> ladder.killed() }.rung

    @Test
    fun `one kill takes the next smaller plans, two the smallest, three a method of forward passes`() {
        val rungs = PlanLadder.rungs(mesp + mezo)
        assertEquals(listOf(Rung("mesp", 200), Rung("mesp", 120), Rung("mesp", 80), Rung("mezo", 80, true)), rungs)
        assertEquals(listOf(0, 1, 2, 3, 3), (0..4).map { kills(it) })
    }

    @Test
    fun `rungs that a bundle lacks are left out`() {
        assertEquals(listOf(Rung("mesp", 200), Rung("mesp", 120)), PlanLadder.rungs(mesp.take(2)))
        assertEquals(listOf(Rung("mesp", 200), Rung("mezo", 200, true)), PlanLadder.rungs(mesp.take(1) + mezo.take(1)))
        assertEquals(listOf(Rung("mesp", null)), PlanLadder.rungs(listOf(PlannedTraining("mesp", null, 9, false))))
        assertEquals(listOf(200L, 120, 80), PlanLadder.rungs(mezo).map { it.memoryBytes })
        assertEquals(emptyList<Rung>(), PlanLadder.rungs(emptyList()))
        assertThrows<IllegalArgumentException> { PlanLadder.rungs(mesp, "mebp") }
    }

    @Test
    fun `two clean slices go one up, and a kill begins to count anew`() {
        val down = PlanLadder().killed().killed()
        assertEquals(PlanLadder(2), down)
        assertEquals(PlanLadder(1), down.clean().clean())
        assertEquals(PlanLadder(0), down.clean().clean().clean().clean())
        assertEquals(PlanLadder(3), down.clean().killed())
        assertEquals(PlanLadder(2), down.clean().killed().clean().clean())
        assertEquals(PlanLadder(), PlanLadder().clean())
    }

    private val kept = Kept(ladder = PlanLadder(1, 1), slice = 2000, crashes = 2)

    @Test
    fun `what a slice ends by moves the ladder, or does not`() {
        val hotOrSaving = setOf(Pause.HOT, Pause.POWER_SAVE)
        assertEquals(PlanLadder(0), kept.after(SliceEnd(rungs = 4)).ladder)
        assertEquals(PlanLadder(2), kept.after(SliceEnd(rungs = 4, tookTooMuch = true)).ladder)
        assertEquals(PlanLadder(1, 1), kept.copy(ladder = PlanLadder(3)).after(SliceEnd(rungs = 2)).ladder)  // a bundle with two rungs
        for (pause in Pause.entries - hotOrSaving) assertEquals(PlanLadder(1, 1), kept.after(SliceEnd(rungs = 4, pause = pause)).ladder)
        for (pause in hotOrSaving) assertEquals(PlanLadder(0), kept.after(SliceEnd(rungs = 4, pause = pause)).ladder)
        assertEquals(PlanLadder(1, 1), kept.after(SliceEnd(failure = "no bundle")).ladder)
        assertEquals(listOf(0, 2), listOf(SliceEnd(rungs = 4), SliceEnd(failure = "no bundle")).map { kept.after(it).crashes })
        assertEquals(null, kept.after(SliceEnd(rungs = 4)).slice)
        assertEquals(kept, kept.after(null as SliceEnd?))  // why its process died is looked at before the next one
    }

    @Test
    fun `only an end of the process within a slice counts`() {
        fun after(slice: Long?, vararg exits: Exits.Exit) = kept.copy(slice = slice).after(exits.toList())
        val kill = Exits.Exit(ExitMeans.MEMORY_KILL, 3000)
        assertEquals(PlanLadder(2), after(2000, kill).ladder)
        assertEquals(3000, after(2000, kill).seenExit)
        assertEquals(PlanLadder(1, 1), after(null, kill).ladder)  // it waited for work
        assertEquals(3000, after(null, kill).seenExit)
        assertEquals(PlanLadder(1, 1), after(4000, kill).ladder)  // before the slice began
        assertEquals(PlanLadder(1, 1), after(2000).ladder)  // the worker was stopped, the process lives
        assertEquals(3, after(2000, Exits.Exit(ExitMeans.CRASH, 3000)).crashes)
        assertEquals(kept.copy(slice = null, seenExit = 3000), after(2000, Exits.Exit(ExitMeans.OTHER_END, 3000)))
        assertEquals(PlanLadder(2), kept.after(null as List<Exits.Exit>?).ladder)  // the system does not tell why
        assertEquals(PlanLadder(1, 1), kept.copy(slice = null).after(null as List<Exits.Exit>?).ladder)
    }
}
