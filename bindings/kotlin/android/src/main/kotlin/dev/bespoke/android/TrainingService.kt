// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.android

import android.app.Service
import android.content.Intent
import android.os.Bundle
import android.os.Handler
import android.os.IBinder
import android.os.Looper
import android.os.Message
import android.os.Messenger
import android.os.RemoteException
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.Job
import kotlinx.coroutines.SupervisorJob
import kotlinx.coroutines.cancel
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.launch
import kotlinx.serialization.KSerializer
import kotlinx.serialization.json.Json

/**
 * Trains in a process of its own (`:training` in the manifest), so that what the system does about its memory does not end the app. Bound
 * by [PersonalizationWorker]; it takes an order, tells where it is, and ends with its slice, its client or its binding.
 */
internal class TrainingService : Service() {
    internal val scope = CoroutineScope(SupervisorJob() + Dispatchers.Default)
    private val messenger by lazy { Messenger(Handler(Looper.getMainLooper()) { onMessage(it) }) }
    private val sensors by lazy { Sensors(applicationContext) }
    private var slice: Slice? = null

    private class Slice(val client: Messenger, val job: Job)

    override fun onBind(intent: Intent?): IBinder = messenger.binder

    override fun onUnbind(intent: Intent?): Boolean {
        slice?.job?.cancel()
        return false
    }

    override fun onTrimMemory(level: Int) {
        super.onTrimMemory(level)
        sensors.trim(level)
    }

    override fun onDestroy() {
        scope.cancel()
        super.onDestroy()
    }

    private fun onMessage(message: Message): Boolean {
        when (message.what) {
            Words.START -> start(message.said(SliceOrder.serializer()), message.replyTo)
            Words.STOP -> slice?.takeIf { it.client == message.replyTo }?.job?.cancel()  // it may be the next client's by now
            else -> return false
        }
        return true
    }

    private fun start(order: SliceOrder, client: Messenger) {
        val before = slice?.job
        if (before?.isActive == true && !order.isForeground) return client.say(Words.ENDED, SliceEnd.serializer(), SliceEnd(pause = Pause.BUSY))
        var end = SliceEnd(pause = Pause.BUSY)  // also of a slice that was stopped before its first line ran
        val job = scope.launch {
            before?.cancelAndJoin()  // the user waits for this one, or the one before was stopped and commits
            end = try {
                SliceRunner(applicationContext, sensors, order) { client.say(Words.PROGRESS, SliceProgress.serializer(), it) }.run()
            } catch (_: CancellationException) {
                return@launch
            } catch (error: Exception) {
                endBy(error)
            }
        }
        job.invokeOnCompletion { error ->
            if (error == null || error is CancellationException) client.say(Words.ENDED, SliceEnd.serializer(), end)  // else the process dies
        }
        slice = Slice(client, job)
        try {
            client.binder.linkToDeath({ job.cancel() }, 0)
        } catch (_: RemoteException) {  // it is dead already
            job.cancel()
        }
    }
}

/** The protocol between the worker and the training process: a number, and JSON. */
internal object Words {
    const val START = 1
    const val STOP = 2
    const val PROGRESS = 3
    const val ENDED = 4
}

private const val SAID = "json"
private val words = Json { allowSpecialFloatingPointValues = true }  // a loss may be no number

internal fun <T> Messenger.say(what: Int, serializer: KSerializer<T>, value: T, replyTo: Messenger? = null) {
    val message = Message.obtain(null, what)
    message.data = Bundle().apply { putString(SAID, words.encodeToString(serializer, value)) }
    message.replyTo = replyTo
    try {
        send(message)
    } catch (_: RemoteException) {
        // Who is gone needs no answer; its death is heard by linkToDeath and by the binding.
    }
}

internal fun <T> Message.said(serializer: KSerializer<T>): T = words.decodeFromString(serializer, checkNotNull(data.getString(SAID)))

/** Where a client hears what its slice says, on the main thread. */
internal fun answers(onProgress: (SliceProgress) -> Unit, onEnd: (SliceEnd) -> Unit) = Messenger(
    Handler(Looper.getMainLooper()) { message ->
        when (message.what) {
            Words.PROGRESS -> onProgress(message.said(SliceProgress.serializer()))
            Words.ENDED -> onEnd(message.said(SliceEnd.serializer()))
        }
        true
    },
)
