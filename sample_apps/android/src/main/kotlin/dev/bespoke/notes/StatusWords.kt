// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.notes

import android.content.Context
import android.text.format.DateUtils
import android.text.format.Formatter
import dev.bespoke.RefusedBecause
import dev.bespoke.android.LastSlice
import dev.bespoke.android.LearningStatus
import dev.bespoke.android.Pause

/** One figure: what it is, and how much. */
data class Fact(val label: String, val value: String)

/** @property steps of the run: done, and planned; null: nothing to show a bar for; 0 of 0: nobody knows yet */
data class Said(val title: String, val text: String, val facts: List<Fact> = emptyList(), val steps: Pair<Int, Int>? = null)

/** A status in words for somebody who has never heard of training. It holds no views. */
class StatusWords(private val context: Context, private val restHours: Long) {
    fun of(status: LearningStatus, book: Notebook): Said = when (status) {
        is LearningStatus.Running -> running(status)
        is LearningStatus.Waiting -> waiting(status, book)
        is LearningStatus.Off -> off(status, book)
    }

    /** What the last slice did; null: there was none. */
    fun last(last: LastSlice?): Said? = last?.let {
        val (outcome, why) = outcome(it)
        val facts = listOfNotNull(
            Fact(word(R.string.fact_when), DateUtils.formatDateTime(context, it.at, DATE)),
            Fact(word(R.string.fact_steps), "%d".format(it.totalSteps)),
            fromTo(it)?.let { values -> Fact(word(R.string.fact_error), values) },
            Fact(word(R.string.fact_memory), memory(it.addedBytes, it.limitBytes)),
            Fact(word(R.string.fact_written), bytes(it.bytesWritten)),
            Fact(word(R.string.fact_time), time(it.seconds)),
        )
        Said(word(R.string.last_title), listOfNotNull(outcome, why).joinToString(" "), facts)
    }

    private fun off(status: LearningStatus.Off, book: Notebook): Said {
        val failure = status.failure
        return when {
            failure != null && book.learns ->
                Said(word(R.string.status_failed), word(R.string.status_failed_text), listOf(Fact(word(R.string.fact_technical), failure)))
            book.learns -> Said(word(R.string.status_waiting), word(R.string.status_waiting_text), listOf(notes(book)))  // on its way
            book.hasTaught -> Said(word(R.string.status_off), word(R.string.status_off_kept_text))
            else -> Said(word(R.string.status_off), word(R.string.status_off_text))
        }
    }

    private fun waiting(status: LearningStatus.Waiting, book: Notebook): Said {
        val pause = status.pause
        return when {
            pause != null -> {
                val technical = status.failure?.let { Fact(word(R.string.fact_technical), it) }
                Said(word(R.string.status_paused), word(reason(pause)), listOfNotNull(notes(book), technical))
            }
            status.last?.accepted != null -> Said(word(R.string.status_done), rest(), listOf(notes(book)))
            else -> Said(word(R.string.status_waiting), word(R.string.status_waiting_text), listOf(notes(book)))
        }
    }

    private fun running(status: LearningStatus.Running): Said {
        val steps = status.step.toInt() to status.steps.toInt()
        if (status.steps == 0L) return Said(word(R.string.status_opening), word(R.string.status_opening_text), steps = steps)
        val facts = listOfNotNull(
            status.loss?.let { Fact(word(R.string.fact_error_now), decimal(it)) },
            Fact(word(R.string.fact_memory_now), memory(status.addedBytes, status.limitBytes)),
        )
        val text = context.getString(R.string.status_learning_text, steps.first, steps.second)
        return Said(word(R.string.status_learning), text, facts, steps)
    }

    private fun outcome(last: LastSlice): Pair<String, String?> = when (last.accepted) {
        true -> word(R.string.last_accepted) to null
        false -> word(R.string.last_refused) to word(reason(last.refusedBecause))
        null -> word(R.string.last_unfinished) to null
    }

    private fun reason(refused: RefusedBecause?): Int = when (refused) {
        RefusedBecause.DIVERGED -> R.string.refused_diverged
        RefusedBecause.NOTHING_TO_JUDGE_BY -> R.string.refused_nothing_to_judge_by
        RefusedBecause.NO_BETTER -> R.string.refused_no_better
        RefusedBecause.LUCK -> R.string.refused_luck
        RefusedBecause.TOO_SMALL -> R.string.refused_too_small
        RefusedBecause.GENERAL_WORSE -> R.string.refused_general_worse
        RefusedBecause.BEHAVIOUR_WORSE -> R.string.refused_behaviour_worse
        RefusedBecause.ANSWERS_ENDLESS -> R.string.refused_answers_endless
        RefusedBecause.ANSWERS_EMPTY -> R.string.refused_answers_empty
        RefusedBecause.ANSWERS_COPIED -> R.string.refused_answers_copied
        RefusedBecause.WITHDRAWN -> R.string.refused_withdrawn
        RefusedBecause.UNKNOWN, null -> R.string.refused_unknown
    }

    private fun reason(pause: Pause): Int = when (pause) {
        Pause.HOT -> R.string.pause_hot
        Pause.POWER_SAVE -> R.string.pause_power_save
        Pause.MEMORY -> R.string.pause_memory
        Pause.BUSY -> R.string.pause_busy
        Pause.NO_EXAMPLES -> R.string.pause_no_examples
        Pause.DISK -> R.string.pause_disk
        Pause.ERROR -> R.string.pause_error
    }

    private fun memory(added: Long, limit: Long?): String =
        if (limit == null) context.getString(R.string.fact_memory_no_limit, bytes(added))
        else context.getString(R.string.fact_memory_value, bytes(added), bytes(limit))

    private fun fromTo(last: LastSlice): String? {
        val (first, end) = (last.firstLoss ?: return null) to (last.lastLoss ?: return null)
        return context.getString(R.string.fact_from_to, decimal(first), decimal(end))
    }

    private fun rest() = context.resources.getQuantityString(R.plurals.status_done_text, restHours.toInt(), restHours.toInt())

    private fun notes(book: Notebook) = Fact(word(R.string.fact_notes), "%d".format(book.notes.size))

    private fun word(id: Int) = context.getString(id)

    private fun bytes(of: Long) = Formatter.formatShortFileSize(context, of)

    private fun decimal(value: Double) = String.format(context.resources.configuration.locales[0], "%.2f", value)

    private fun time(seconds: Double): String {
        if (seconds < MINUTE) return context.getString(R.string.time_seconds, decimalTenth(seconds))
        val whole = Math.round(seconds)
        return context.getString(R.string.time_minutes, (whole / MINUTE).toInt(), (whole % MINUTE).toInt())
    }

    private fun decimalTenth(value: Double) = String.format(context.resources.configuration.locales[0], "%.1f", value)

    private companion object {
        const val MINUTE = 60
        const val DATE = DateUtils.FORMAT_SHOW_DATE or DateUtils.FORMAT_SHOW_TIME or DateUtils.FORMAT_SHOW_YEAR
    }
}
