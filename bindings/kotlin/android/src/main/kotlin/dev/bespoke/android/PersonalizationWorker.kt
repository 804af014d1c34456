// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.android

import android.content.Context
import androidx.work.CoroutineWorker
import androidx.work.ExistingWorkPolicy
import androidx.work.ForegroundInfo
import androidx.work.WorkerParameters
import androidx.work.workDataOf
import java.time.Duration
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.MutableStateFlow
import kotlinx.coroutines.flow.filterNotNull
import kotlinx.coroutines.flow.update
import kotlinx.coroutines.launch
import kotlinx.coroutines.withContext
import kotlinx.serialization.json.Json

/**
 * One slice of training: in [TrainingService]'s process, by the plans that [PlanLadder] says, and at its end a request for the next one.
 * Constraints that are lost, a cancellation and the system's time-out stop it at the next instruction, in a committed state; WorkManager
 * asks for it again then.
 */
internal class PersonalizationWorker(context: Context, parameters: WorkerParameters) : CoroutineWorker(context, parameters) {
    private val learning = Learning.of(inputData)
    private val isForeground = inputData.getBoolean(FOREGROUND, false)

    override suspend fun doWork(): Result = withContext(Dispatchers.Default) {
        val journal = Place(applicationContext, learning.name).journal
        val before = journal.update { it.after(Exits.since(applicationContext, trainingProcess(applicationContext), it.seenExit)) }
        if (before.crashes >= MOST_CRASHES) return@withContext failed("the training process crashed $MOST_CRASHES times")
        if (isForeground) show(null)
        journal.update { it.copy(slice = System.currentTimeMillis()) }
        val end = slice(before.ladder)
        val after = journal.update { it.after(end) }
        end?.failure?.let { if (isForeground || end.pause == null || after.failures >= MOST_FAILURES) return@withContext failed(it) }
        // A new request and not a retry, whose waiting time would grow from slice to slice.
        rest(end)?.let { Personalization.enqueue(applicationContext, learning, isForeground, it, ExistingWorkPolicy.APPEND_OR_REPLACE) }
        Result.success()
    }

    /** From this slice to the next one; null: there is none. */
    private fun rest(end: SliceEnd?): Duration? = when {
        isForeground && (end?.isWhole == true || end?.pause != null) -> null
        end?.pause != null -> AFTER_PAUSE
        end?.isWhole == true -> Duration.ofHours(learning.restHours)
        else -> Duration.ZERO
    }

    private suspend fun slice(ladder: PlanLadder): SliceEnd? = coroutineScope {
        val order = SliceOrder(learning.bundle, learning.name, learning.sliceSeconds, learning.method, ladder, isForeground)
        val told = MutableStateFlow<SliceProgress?>(null)
        val telling = launch { told.filterNotNull().collect { show(it) } }
        slices.update { it + 1 }
        try {
            TrainingProcess(applicationContext) { told.value = it }.train(order)
        } finally {
            slices.update { it - 1 }
            telling.cancel()
        }
    }

    private suspend fun show(progress: SliceProgress?) {
        progress?.let { setProgress(workDataOf(PROGRESS to Json.encodeToString(SliceProgress.serializer(), it.copy(loss = it.loss?.takeIf(Double::isFinite))))) }
        if (!isForeground) return
        try {
            setForeground(LearnNowNotification.info(applicationContext, id, learning.texts, progress))
        } catch (_: IllegalStateException) {
            // The system does not allow it now, for instance when its six hours a day are used up: a slice fits into work without it.
        }
        delay(SHOW_MS)
    }

    private fun failed(why: String) = Result.failure(workDataOf(FAILURE to why))

    override suspend fun getForegroundInfo(): ForegroundInfo = LearnNowNotification.info(applicationContext, id, learning.texts, null)

    internal companion object {
        const val FOREGROUND = "foreground"
        const val PROGRESS = "progress"
        const val FAILURE = "failure"
        private const val MOST_CRASHES = 3
        private const val MOST_FAILURES = 3
        private const val SHOW_MS = 500L
        private val AFTER_PAUSE: Duration = Duration.ofMinutes(15)

        /** Slices that run or end now: a worker that was cancelled counts until its process has committed. */
        val slices = MutableStateFlow(0)
    }
}

internal fun trainingProcess(context: Context) = "${context.packageName}:training"
