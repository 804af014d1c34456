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
        val delivered = Delivery.of(applicationContext, checkNotNull(inputData.getString(NAME)) { "work without the name of a bundle" })
        val request = checkNotNull(inputData.getString(REQUEST)) { "work without a request" }
        val told = MutableStateFlow<DeliveryProgress?>(null)
        val telling = launch { told.filterNotNull().collect { show(it) } }
        try {
            // A worker that was stopped may still write its last bytes.
            Delivery.alone.withLock { bring(delivered, request) { told.value = it } }
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

    private suspend fun bring(delivered: DeliveredBundle, request: String, told: (DeliveryProgress) -> Unit) {
        val download = delivered.requests.read(request)
        if (download != null) {
            delivered.bring(download, told)
            delivered.requests.delete(request)
        } else if (!delivered.isDelivered(request)) {  // where it is: killed before WorkManager noted it
            throw DeliveryError("the request $request", "no file with it", "the file that it was kept in", "Call Delivery.request again.")
        }
    }

    private suspend fun show(progress: DeliveryProgress) {
        setProgress(workDataOf(PROGRESS to Json.encodeToString(DeliveryProgress.serializer(), progress)))
        delay(SHOW_MS)
    }

    private fun failed(why: RuntimeException) = Result.failure(workDataOf(FAILURE to why.message.orEmpty().take(MOST_CHARACTERS)))

    internal companion object {
        const val NAME = "name"
        const val REQUEST = "request"
        const val PROGRESS = "progress"
        const val FAILURE = "failure"
        private const val SHOW_MS = 500L
        private const val MOST_CHARACTERS = 2000  // WorkManager takes 10,240 bytes of what a worker says, and a character has up to 3
    }
}
