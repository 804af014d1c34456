// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.android

import dev.bespoke.PlannedTraining
import kotlinx.serialization.Serializable

/**
 * By which of a bundle's plans the next slice trains, after what the system did to the slices before. Pure: [Journal] keeps it.
 *
 * Each memory kill goes one rung down: the plans for the bundle's own budget, those for the next smaller one, those for the smallest, and
 * then a method that runs forward passes only, as a run of its own. Two slices in a row that nothing killed go one rung up. A rung that
 * the bundle lacks is left out.
 *
 * @property rung 0 is the first
 * @property clean slices since the rung last changed that nothing killed
 */
@Serializable
internal data class PlanLadder(val rung: Int = 0, val clean: Int = 0) {
    /** After the system has ended a slice for its memory; how many rungs the bundle has is not known then. */
    fun killed() = PlanLadder((rung + 1).coerceAtMost(MOST_RUNGS - 1))

    /** The same on a bundle of so many rungs. */
    fun within(rungs: Int) = if (rung < rungs) this else PlanLadder(rungs - 1)

    /** After a slice that nothing has killed. */
    fun clean() = when {
        rung == 0 -> PlanLadder()
        clean + 1 >= CLEAN_TO_CLIMB -> PlanLadder(rung - 1)
        else -> copy(clean = clean + 1)
    }

    companion object {
        private const val CLEAN_TO_CLIMB = 2
        private const val MOST_RUNGS = 4

        /** The rungs of a bundle for a method, by default its first one. Empty where the bundle has no method. */
        fun rungs(planned: List<PlannedTraining>, method: String? = null): List<Rung> {
            val name = method ?: planned.firstOrNull()?.method ?: return emptyList()
            val own = planned.filter { it.method == name }
            require(own.isNotEmpty()) { "the bundle has no method '$name'" }
            val used = listOf(own.first(), own[minOf(1, own.lastIndex)], own.last()).distinct()
            val last = planned.lastOrNull { it.replayable && it.method != name }
            return used.map { Rung(name, it.memoryBytes) } + listOfNotNull(last?.let { Rung(it.method, it.memoryBytes, isLastResort = true) })
        }
    }
}

/**
 * What a slice is asked for.
 *
 * @property memoryBytes the budget of the plans; null: that of the bundle
 * @property isLastResort a method that runs forward passes only, because all plans of the other one took too much
 */
internal data class Rung(val method: String, val memoryBytes: Long?, val isLastResort: Boolean = false)
