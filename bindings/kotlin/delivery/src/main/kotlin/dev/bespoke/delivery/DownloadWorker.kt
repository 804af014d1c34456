// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.delivery

import android.content.Context
import androidx.work.CoroutineWorker
import androidx.work.WorkerParameters
import androidx.work.workDataOf
import dev.bespoke.BespokeError
import dev.bespoke.DiskFull
import java.io.IOException
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.MutableStateFlow
import kotlinx.coroutines.flow.filterNotNull
import kotlinx.coroutines.launch
import kotlinx.coroutines.sync.withLock
import kotlinx.serialization.json.Json

/**
 * Brings a bundle and installs it. A network that is lost, a full disk and the system's ten minutes end it; what has come is kept, and
 * WorkManager asks for the rest later. What no second try mends ends it with the reason.
 */
class DownloadWorker(context: Context, parameters: WorkerParameters) : CoroutineWorker(context, parameters) {
    override suspend fun doWork(): Result = coroutineScope {
        val download = BundleDownload.of(inputData)
        val told = MutableStateFlow<DeliveryProgress?>(null)
        val telling = launch { told.filterNotNull().collect { show(it) } }
        try {
            // A worker that was stopped may still write its last bytes.
            Delivery.alone.withLock { Delivery.of(applicationContext, download.name).bring(download) { told.value = it } }
            Result.success()
        } catch (_: IOException) {
            Result.retry()
        } catch (_: DiskFull) {
            Result.retry()
        } catch (refused: DeliveryError) {
            failed(refused)
        } catch (refused: BespokeError) {
            failed(refused)
        } finally {
            telling.cancel()
        }
    }

    private suspend fun show(progress: DeliveryProgress) {
        setProgress(workDataOf(PROGRESS to Json.encodeToString(DeliveryProgress.serializer(), progress)))
        delay(SHOW_MS)
    }

    private fun failed(why: RuntimeException) = Result.failure(workDataOf(FAILURE to why.message))

    internal companion object {
        const val PROGRESS = "progress"
        const val FAILURE = "failure"
        private const val SHOW_MS = 500L
    }
}
