// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.android

import dev.bespoke.PlannedTraining
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.assertThrows

class PlanLadderTest {
    private val mesp = listOf(200L, 120, 100, 80).map { PlannedTraining("mesp", it, it, false) }
    private val mezo = listOf(200L, 120, 100, 80).map { PlannedTraining("mezo", it, it / 2, true) }

    private fun kills(number: Int, rungs: Int) = (1..number).fold(PlanLadder()) { ladder, _ -> ladder.killed(rungs) }.rung

    @Test
    fun `one kill takes the next smaller plans, two the smallest, three a method of forward passes`() {
        val rungs = PlanLadder.rungs(mesp + mezo)
        assertEquals(listOf(Rung("mesp", 200), Rung("mesp", 120), Rung("mesp", 80), Rung("mezo", 80, true)), rungs)
        assertEquals(listOf(0, 1, 2, 3, 3), (0..4).map { kills(it, rungs.size) })
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
        val down = PlanLadder().killed(4).killed(4)
        assertEquals(PlanLadder(2), down)
        assertEquals(PlanLadder(1), down.clean().clean())
        assertEquals(PlanLadder(0), down.clean().clean().clean().clean())
        assertEquals(PlanLadder(3), down.clean().killed(4))
        assertEquals(PlanLadder(2), down.clean().killed(4).clean().clean())
        assertEquals(PlanLadder(), PlanLadder().clean())
    }

    @Test
    fun `what a slice ends by moves the ladder, or does not`() {
        val kept = Kept(ladder = PlanLadder(1, 1), rungs = 4, crashes = 2)
        assertEquals(PlanLadder(0), kept.after(SliceEnd(rungs = 4), true).ladder)
        assertEquals(PlanLadder(2), kept.after(SliceEnd(rungs = 4, tookTooMuch = true), true).ladder)
        for (pause in listOf(Pause.MEMORY, Pause.BUSY)) assertEquals(PlanLadder(1, 1), kept.after(SliceEnd(rungs = 4, pause = pause), true).ladder)
        for (pause in listOf(Pause.HOT, Pause.POWER_SAVE)) assertEquals(PlanLadder(0), kept.after(SliceEnd(rungs = 4, pause = pause), true).ladder)
        assertEquals(PlanLadder(1, 1), kept.after(SliceEnd(failure = "no bundle"), true).ladder)
        assertEquals(listOf(0, 2), listOf(SliceEnd(rungs = 4), SliceEnd(failure = "no bundle")).map { kept.after(it, true).crashes })
        // It died: where the system tells why, that is read before the next slice; else it was for its memory.
        assertEquals(PlanLadder(1, 1), kept.after(null, exitsAreTold = true).ladder)
        assertEquals(PlanLadder(2), kept.after(null, exitsAreTold = false).ladder)
    }
}
