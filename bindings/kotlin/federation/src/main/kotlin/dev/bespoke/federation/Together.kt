// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.federation

import android.content.Context
import androidx.work.Constraints
import androidx.work.Data
import androidx.work.ExistingWorkPolicy
import androidx.work.NetworkType
import androidx.work.OneTimeWorkRequestBuilder
import androidx.work.WorkManager
import androidx.work.await
import androidx.work.workDataOf
import dev.bespoke.FederationStatus
import dev.bespoke.PersonalModel
import dev.bespoke.android.Learning
import java.io.File
import java.time.Duration
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.withContext
import kotlinx.serialization.Serializable
import kotlinx.serialization.json.Json

/**
 * With whom this user learns together, and when. It is kept with the scheduled work, so it holds data and no code.
 *
 * @property learning the bundle and the user's state, as what learns alone has them
 * @property server its address, https://...
 * @property token one-time, from the app's own service; null once the server has let this device in
 * @property whenIdle also wait until nobody uses the device
 * @property rounds most that are measured at a time
 * @property restHours from one time to the next
 * @property seconds of one time; the system ends work that takes ten minutes
 */
@Serializable
data class LearningTogether(
    val learning: Learning,
    val server: String,
    val token: String? = null,
    val whenIdle: Boolean = true,
    val rounds: Int = 1,
    val restHours: Long = 24,
    val seconds: Double = 540.0,
) {
    init {
        FederationClient.checked(server)
        require(rounds >= 1) { "rounds is 1 or more: got $rounds" }
        require(restHours >= 0) { "restHours is 0 or more: got $restHours" }
        require(seconds > 0) { "seconds is more than 0: got $seconds" }
    }

    internal fun data(): Data = workDataOf(KEY to text())

    internal fun text(): String = Json.encodeToString(serializer(), this)

    internal companion object {
        private const val KEY = "together"

        fun of(data: Data): LearningTogether =
            Json.decodeFromString(serializer(), checkNotNull(data.getString(KEY)) { "work without what is learned together" })
    }
}

/**
 * What the app can show.
 *
 * @property federation what the user takes part in, and what it has cost
 * @property traffic what has passed with the device's key
 * @property isLetIn whether the server has let this device in
 * @property isScheduled whether it goes on in the background
 * @property failure why it does not any more, where an error ended it
 */
data class TogetherStatus(
    val federation: FederationStatus, val traffic: Traffic, val isLetIn: Boolean, val isScheduled: Boolean, val failure: String?,
)

/** Learning with others in the background. */
object Together {
    /**
     * From now on, while the device is charged, by default idle, and in a network that is not metered, until [leave]. Nothing is done
     * before the user has joined (`model.federation.join()`). Doing so again, for instance at each start of the app, changes nothing; other
     * settings take the place of those before. At most [LearningTogether.rounds] are measured within [LearningTogether.restHours].
     */
    fun schedule(context: Context, together: LearningTogether) {
        val isKnown = Place(context, together.learning.name).isScheduled(together.text())
        enqueue(context, together, Duration.ZERO, if (isKnown) ExistingWorkPolicy.KEEP else ExistingWorkPolicy.REPLACE)
    }

    /** Where it is. [model] is the user's, open. */
    suspend fun status(context: Context, together: LearningTogether, model: PersonalModel): TogetherStatus = withContext(Dispatchers.IO) {
        val device = device(context, together)
        val work = WorkManager.getInstance(context).getWorkInfosForUniqueWorkFlow(work(together)).first()
        TogetherStatus(
            model.federation.status(), device.traffic, device.server == FederationClient.checked(together.server),
            work.any { !it.state.isFinished }, work.firstNotNullOfOrNull { it.outputData.getString(FederationWorker.FAILURE) },
        )
    }

    /**
     * Takes the consent back: what runs ends, and the device's key, what was to be sent and the shared adapter are deleted. What was sent
     * cannot be recalled. [model] is the user's, open.
     */
    suspend fun leave(context: Context, together: LearningTogether, model: PersonalModel): Unit = withContext(Dispatchers.IO) {
        val manager = WorkManager.getInstance(context)
        manager.cancelUniqueWork(work(together)).await()
        manager.getWorkInfosForUniqueWorkFlow(work(together)).first { all -> all.all { it.state.isFinished } }
        FederationWorker.turns.first { it == 0 }
        model.federation.leave()
        device(context, together).delete()
        Place(context, together.learning.name).delete()
    }

    /** This user's device, whose key is in Android's key store: for a [FederationClient] of the app's own. */
    fun device(context: Context, together: LearningTogether): Device =
        Device(KeystoreKey("dev.bespoke.federation.${together.learning.name}"), Place(context, together.learning.name).record)

    internal fun work(together: LearningTogether) = "dev.bespoke.federation.${together.learning.name}"

    internal fun enqueue(context: Context, together: LearningTogether, delay: Duration, policy: ExistingWorkPolicy) {
        val constraints = Constraints.Builder()
            .setRequiredNetworkType(NetworkType.UNMETERED)
            .setRequiresCharging(true)
            .setRequiresBatteryNotLow(true)
            .setRequiresStorageNotLow(true)
            .setRequiresDeviceIdle(together.whenIdle)
        val request = OneTimeWorkRequestBuilder<FederationWorker>()
            .setConstraints(constraints.build())
            .setInputData(together.data())
            .setInitialDelay(delay)
        WorkManager.getInstance(context).enqueueUniqueWork(work(together), policy, request.build())
    }
}

/** Where a user's device is kept, and what is known between two times: in no backup. */
internal class Place(context: Context, name: String) {
    private val folder: File
    val record: File
    val quota: Quota
    private val scheduled: DurableFile

    init {
        require(name.matches(Regex("[A-Za-z0-9_-]{1,64}"))) { "the name of a state is letters, digits, _ and -: got '$name'" }
        folder = File(context.noBackupFilesDir, "bespoke-federation/$name")
        record = File(folder, "device.json")
        quota = Quota(DurableFile(File(folder, "quota.json")))
        scheduled = DurableFile(File(folder, "scheduled.json"))
    }

    /** Whether this was scheduled last. From now on it was. */
    fun isScheduled(together: String): Boolean = scheduled.alone {
        (scheduled.read() == together).also { if (!it) scheduled.write(together) }
    }

    /** The quota stays: who leaves and joins again takes part no more often. */
    fun delete(): Unit = scheduled.alone { scheduled.delete() }
}
