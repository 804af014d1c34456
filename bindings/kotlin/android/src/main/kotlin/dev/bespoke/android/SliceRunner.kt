// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.android

import android.content.Context
import dev.bespoke.BudgetExceeded
import dev.bespoke.PersonalModel
import dev.bespoke.TrainReport
import dev.bespoke.Training
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.conflate
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.launch
import kotlinx.coroutines.withTimeoutOrNull

/** One slice of training in this process, from an order to its end. Cancelled, it ends at the next instruction in a committed state. */
internal class SliceRunner(
    private val context: Context,
    private val sensors: Sensors,
    private val order: SliceOrder,
    private val tell: (SliceProgress) -> Unit,
) {
    private val began = System.nanoTime()

    @Volatile
    private var pause: Pause? = null

    suspend fun run(): SliceEnd {
        sensors.begin()
        val place = Place(context, order.name).made()
        return order.bundle.opened(context, place.state.path).use { model -> train(model) }
    }

    private suspend fun train(model: PersonalModel): SliceEnd = coroutineScope {
        val planned = model.plannedTraining()
        val rungs = PlanLadder.rungs(planned, order.method)
        check(rungs.isNotEmpty()) { "The bundle: got one without methods; expected one that trains. Build it with an optimizer." }
        if (model.examples.count() == 0L) return@coroutineScope SliceEnd(rungs = rungs.size, pause = Pause.NO_EXAMPLES)
        val rung = rungs[order.ladder.rung.coerceAtMost(rungs.lastIndex)]
        val limit = Limit(model, rung.memoryBytes, planned.filter { it.method == rung.method }.minOf { it.peakBytes })
        limit.follow(sensors.read())
        val watching = launch {
            while (true) {
                val seen = sensors.trimLevel.value
                withTimeoutOrNull(WATCH_MS) { sensors.trimLevel.first { it > seen } }
                limit.follow(sensors.read())
            }
        }
        val telling = launch {
            model.progress.conflate().collect {
                tell(SliceProgress(it.phase, it.step, it.steps, it.loss, sensors.added(it.footprintBytes), limit.bytes))
                delay(TELL_MS)
            }
        }
        try {
            val learned = learned(model, rung, limit)
            val last = learned?.let { LastSlice.of(it, System.currentTimeMillis(), rungs.any { one -> one.isLastResort && one.method == it.method }) }
            SliceEnd(last, last != null && model.currentRun() == null, rungs.size, pause, tookTooMuch = limit.wasTooLow)
        } finally {
            watching.cancel()
            telling.cancel()
        }
    }

    /** Where the limit is lowered while it trains, what was done is committed and it goes on by the plans that have room then. */
    private suspend fun learned(model: PersonalModel, rung: Rung, limit: Limit): TrainReport? {
        while (true) {
            val left = order.seconds - (System.nanoTime() - began) / 1e9
            if (left <= 0 || pause != null) return null
            val unfinished = model.currentRun()?.method
            // A run of the last resort is gone on with to its end, also when the ladder has been climbed again.
            val goesOn = unfinished == rung.method || (unfinished != null && !rung.isLastResort)
            try {
                return model.train(Training(method = if (goesOn) null else rung.method, seconds = left, stop = { pause != null }))
            } catch (_: BudgetExceeded) {
                if (!limit.leavesRoom()) return null
            }
        }
    }

    /** The limit and the pace of a model, as the device's signals have them. */
    private inner class Limit(private val model: PersonalModel, private val budgetBytes: Long?, private val smallestBytes: Long) {
        @Volatile
        var bytes: Long? = budgetBytes
            private set
        var wasTooLow = false
            private set
        private var attempts = 0

        fun follow(signals: Signals) {
            val decision = decide(signals, budgetBytes, smallestBytes, order.isForeground)
            decision.pause?.let { pause = it }
            bytes = decision.limitBytes
            model.setLimit(decision.limitBytes?.let { it.coerceAtLeast(1) / 1e6 })
            model.setPace(decision.pace)
        }

        /** Whether to try again, by smaller plans, where the limit was too low for what ran. */
        fun leavesRoom(): Boolean {
            val limit = bytes ?: return false
            if (limit == budgetBytes) {  // nothing else has lowered it
                wasTooLow = true
                return false
            }
            if (limit < smallestBytes || ++attempts >= MOST_ATTEMPTS) pause = Pause.MEMORY
            return pause == null
        }
    }

    private companion object {
        const val WATCH_MS = 2_000L
        const val TELL_MS = 200L
        const val MOST_ATTEMPTS = 8
    }
}
