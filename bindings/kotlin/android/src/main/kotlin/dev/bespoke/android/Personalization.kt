// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.android

import android.content.Context
import androidx.work.BackoffPolicy
import androidx.work.Constraints
import androidx.work.Data
import androidx.work.ExistingWorkPolicy
import androidx.work.OneTimeWorkRequestBuilder
import androidx.work.WorkInfo
import androidx.work.WorkManager
import androidx.work.WorkQuery
import androidx.work.await
import androidx.work.workDataOf
import dev.bespoke.PersonalModel
import java.time.Duration
import java.util.concurrent.TimeUnit
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.combine
import kotlinx.coroutines.flow.distinctUntilChanged
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.flow.flowOn
import kotlinx.coroutines.withContext
import kotlinx.serialization.Serializable
import kotlinx.serialization.json.Json

/**
 * What is learned, and when. It is kept with the scheduled work, so it holds data and no code.
 *
 * @property bundle where the app's bundle is
 * @property name of the user's state: one for each user of the app
 * @property method null: the bundle's first
 * @property whenIdle also wait until nobody uses the device
 * @property sliceSeconds of one slice, its last commit included; the system ends work that takes ten minutes
 * @property restHours from the end of a run to the next one
 * @property texts of the notification while "learn now" trains
 */
@Serializable
data class Learning(
    val bundle: AppBundle,
    val name: String = "user",
    val method: String? = null,
    val whenIdle: Boolean = true,
    val sliceSeconds: Double = 540.0,
    val restHours: Long = 20,
    val texts: NotificationTexts = NotificationTexts(),
) {
    internal fun data(isForeground: Boolean): Data =
        workDataOf(KEY to Json.encodeToString(serializer(), this), PersonalizationWorker.FOREGROUND to isForeground)

    internal companion object {
        private const val KEY = "learning"

        fun of(data: Data): Learning = Json.decodeFromString(serializer(), checkNotNull(data.getString(KEY)) { "work without what is to be learned" })
    }
}

/**
 * Of the notification of "learn now", in the user's language.
 *
 * @property title what happens
 * @property stop of the button that ends it
 * @property channel of its kind, in the system's settings
 */
@Serializable
data class NotificationTexts(val title: String = "Learning on this device", val stop: String = "Stop", val channel: String = "Learning")

/** What the app can show. */
sealed interface LearningStatus {
    /** What the last slice did; null: there was none. */
    val last: LastSlice?

    /**
     * Nothing is scheduled.
     *
     * @property failure why not any more, where an error ended it
     */
    data class Off(override val last: LastSlice?, val failure: String? = null) : LearningStatus

    /**
     * For the charger, an idle device, or its turn.
     *
     * @property pause why the last slice ended before its time
     * @property failure what the error said, where one ended it
     */
    data class Waiting(override val last: LastSlice?, val pause: Pause? = null, val failure: String? = null) : LearningStatus

    /**
     * A slice is trained.
     *
     * @property step of the run: how many are done; 0 while it opens
     * @property steps of the run: how many are planned; 0 while it opens
     * @property loss of the last step
     * @property addedBytes what training holds on top of what its process held before
     * @property limitBytes what it may hold so now; null: anything
     */
    data class Running(
        override val last: LastSlice?, val step: Long, val steps: Long, val loss: Double?, val addedBytes: Long, val limitBytes: Long?,
    ) : LearningStatus
}

/** Learning from the user in the background. */
object Personalization {
    internal const val NAME = "dev.bespoke.personalization"
    internal const val NOW = "dev.bespoke.personalization.now"
    private const val BACKOFF_SECONDS = 10L

    /**
     * From now on, while the device is charged and, by default, idle, until [cancel]. Doing so again, for instance at each start of the app,
     * changes nothing; other settings take the place of those before.
     */
    fun schedule(context: Context, learning: Learning) = begin(context, learning, isForeground = false)

    /** At once, with a notification that shows how far it is and stops it. Ask for `POST_NOTIFICATIONS` before, from Android 13 on. */
    fun learnNow(context: Context, learning: Learning) = begin(context, learning, isForeground = true)

    /** What runs ends at the next instruction, in a committed state. What was learned stays. */
    fun cancel(context: Context) {
        WorkManager.getInstance(context).run {
            cancelUniqueWork(NAME)
            cancelUniqueWork(NOW)
        }
    }

    /** Where learning is, as it goes on. */
    fun status(context: Context, learning: Learning): Flow<LearningStatus> {
        val manager = WorkManager.getInstance(context)
        return combine(manager.getWorkInfosFlow(WorkQuery.fromUniqueWorkNames(NAME, NOW)), Journal.changes) { found, _ ->
            status(found, Place(context, learning.name).journal.read())
        }.distinctUntilChanged().flowOn(Dispatchers.IO)
    }

    /** The user's model in the app's process: to add examples and to answer, also while it is trained in the background. */
    suspend fun open(context: Context, learning: Learning): PersonalModel = withContext(Dispatchers.IO) {
        learning.bundle.opened(context, Place(context, learning.name).made().state.path)
    }

    /** Deletes everything that was learned and everything that it was learned from, once what runs has ended. No model of it is open. */
    suspend fun forgetEverything(context: Context, learning: Learning): Boolean = withContext(Dispatchers.IO) {
        val manager = WorkManager.getInstance(context)
        for (name in listOf(NAME, NOW)) {
            manager.cancelUniqueWork(name).await()
            manager.getWorkInfosForUniqueWorkFlow(name).first { all -> all.all { it.state.isFinished } }
        }
        PersonalizationWorker.slices.first { it == 0 }
        Place(context, learning.name).delete()
    }

    private fun begin(context: Context, learning: Learning, isForeground: Boolean) {
        var isKnown = true
        Place(context, learning.name).journal.update {
            isKnown = isForeground || it.scheduled == learning
            it.copy(crashes = 0, failures = 0, scheduled = if (isForeground) it.scheduled else learning)  // what somebody asks for is tried again
        }
        enqueue(context, learning, isForeground, Duration.ZERO, if (isKnown) ExistingWorkPolicy.KEEP else ExistingWorkPolicy.REPLACE)
    }

    internal fun enqueue(context: Context, learning: Learning, isForeground: Boolean, delay: Duration, policy: ExistingWorkPolicy) {
        val constraints = Constraints.Builder().setRequiresStorageNotLow(true)
        if (!isForeground) constraints.setRequiresCharging(true).setRequiresBatteryNotLow(true).setRequiresDeviceIdle(learning.whenIdle)
        val request = OneTimeWorkRequestBuilder<PersonalizationWorker>()
            .setConstraints(constraints.build())
            .setInputData(learning.data(isForeground))
            .setInitialDelay(delay)
        // The system refuses a backoff where idle is asked for. Linear: a lost charger counts as an attempt.
        if (isForeground || !learning.whenIdle) request.setBackoffCriteria(BackoffPolicy.LINEAR, BACKOFF_SECONDS, TimeUnit.SECONDS)
        WorkManager.getInstance(context).enqueueUniqueWork(if (isForeground) NOW else NAME, policy, request.build())
    }

    private fun status(found: List<WorkInfo>, kept: Kept): LearningStatus {
        val running = found.firstOrNull { it.state == WorkInfo.State.RUNNING }
        if (running != null) {
            val at = running.progress.getString(PersonalizationWorker.PROGRESS)?.let { Json.decodeFromString(SliceProgress.serializer(), it) }
            return LearningStatus.Running(kept.last, at?.step ?: 0, at?.steps ?: 0, at?.loss, at?.addedBytes ?: 0, at?.limitBytes)
        }
        if (found.any { !it.state.isFinished }) return LearningStatus.Waiting(kept.last, kept.pause, kept.failure)
        return LearningStatus.Off(kept.last, found.firstNotNullOfOrNull { it.outputData.getString(PersonalizationWorker.FAILURE) })
    }
}
