// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.delivery

import android.content.Context
import androidx.work.BackoffPolicy
import androidx.work.Constraints
import androidx.work.ExistingWorkPolicy
import androidx.work.NetworkType
import androidx.work.OneTimeWorkRequestBuilder
import androidx.work.Operation
import androidx.work.WorkInfo
import androidx.work.WorkManager
import androidx.work.await
import androidx.work.workDataOf
import java.io.File
import java.util.concurrent.TimeUnit
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.asExecutor
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.flow.map
import kotlinx.coroutines.sync.Mutex
import kotlinx.coroutines.sync.withLock
import kotlinx.coroutines.withContext
import kotlinx.serialization.json.Json
import okhttp3.OkHttpClient

/** What the app can show. */
sealed interface DeliveryStatus {
    /** Nothing was asked for, or it was deleted. */
    data object Off : DeliveryStatus

    /** For a network that is not metered, for room on the disk, or for its next try. */
    data object Waiting : DeliveryStatus

    /** [at] null: it begins, or installs. */
    data class Running(val at: DeliveryProgress?) : DeliveryStatus

    /** [Delivery.bundle] is what was asked for. */
    data object Done : DeliveryStatus

    /** [Delivery.bundle] is what it was before. */
    data class Failed(val why: String) : DeliveryStatus
}

/** Bundles that come from a server, by WorkManager: over networks that are not metered, resumed where they were cut. */
object Delivery {
    private const val BACKOFF_SECONDS = 30L
    private val client by lazy { OkHttpClient.Builder().followSslRedirects(false).build() }  // https stays https
    internal val alone = Mutex()

    /**
     * At once where there is such a network, else later. What is there is not asked for again, so an app may say it at each start. It is
     * written to a file, where it stays until it has come: [DeliveryError] where the disk has no room for that.
     */
    fun request(context: Context, download: BundleDownload) {
        val requests = of(context, download.name).requests
        val sha256 = requests.keep(download)
        val constraints = Constraints.Builder().setRequiredNetworkType(NetworkType.UNMETERED).setRequiresStorageNotLow(true).build()
        val request = OneTimeWorkRequestBuilder<DownloadWorker>()
            .setConstraints(constraints)
            .setInputData(workDataOf(DownloadWorker.NAME to download.name, DownloadWorker.REQUEST to sha256))
            .setBackoffCriteria(BackoffPolicy.LINEAR, BACKOFF_SECONDS, TimeUnit.SECONDS)
            .build()
        WorkManager.getInstance(context).enqueueUniqueWork(work(download.name), ExistingWorkPolicy.REPLACE, request)
            .whenDone { requests.keepOnly(sha256) }
    }

    /** The folder of the bundle for `BundleSource.At` and `AppBundle`, or null where none has come yet. */
    fun bundle(context: Context, name: String = "chat"): File? = of(context, name).bundle.takeIf { File(it, "manifest.json").isFile }

    fun status(context: Context, name: String = "chat"): Flow<DeliveryStatus> =
        WorkManager.getInstance(context).getWorkInfosForUniqueWorkFlow(work(name)).map { status(it.lastOrNull()) }

    /** Ends what runs; what has come is kept for the next request. */
    fun cancel(context: Context, name: String = "chat") {
        val requests = of(context, name).requests
        requests.forget()
        WorkManager.getInstance(context).cancelUniqueWork(work(name)).whenDone { requests.keepOnly(null) }
    }

    /** Once WorkManager has written it to its database; a change that it could not write changes nothing here either. */
    private fun Operation.whenDone(block: () -> Unit) =
        result.addListener({ if (runCatching { result.get() }.isSuccess) block() }, Dispatchers.IO.asExecutor())

    /** Ends what runs and deletes the bundle and all that came for it. A model that has it open goes on until it is closed. */
    suspend fun delete(context: Context, name: String = "chat"): Boolean = withContext(Dispatchers.IO) {
        val manager = WorkManager.getInstance(context)
        manager.cancelUniqueWork(work(name)).await()
        manager.getWorkInfosForUniqueWorkFlow(work(name)).first { all -> all.all { it.state.isFinished } }
        alone.withLock { of(context, name).delete() }
    }

    internal fun work(name: String) = "dev.bespoke.delivery.$name"

    internal fun of(context: Context, name: String): DeliveredBundle {
        requireName(name)
        return DeliveredBundle(File(context.noBackupFilesDir, "bespoke-bundles/$name"), client)
    }

    private fun status(info: WorkInfo?): DeliveryStatus = when (info?.state) {
        null, WorkInfo.State.CANCELLED -> DeliveryStatus.Off
        WorkInfo.State.ENQUEUED, WorkInfo.State.BLOCKED -> DeliveryStatus.Waiting
        WorkInfo.State.RUNNING -> DeliveryStatus.Running(
            info.progress.getString(DownloadWorker.PROGRESS)?.let { Json.decodeFromString(DeliveryProgress.serializer(), it) },
        )
        WorkInfo.State.SUCCEEDED -> DeliveryStatus.Done
        WorkInfo.State.FAILED -> DeliveryStatus.Failed(info.outputData.getString(DownloadWorker.FAILURE).orEmpty())
    }
}
