// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.android

import android.content.ComponentName
import android.content.Context
import android.content.Intent
import android.content.ServiceConnection
import android.os.IBinder
import android.os.Messenger
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.withContext
import kotlinx.coroutines.withTimeoutOrNull

/** The client of [TrainingService]: one slice by one binding. */
internal class TrainingProcess(private val context: Context, onProgress: (SliceProgress) -> Unit) {
    private val ended = CompletableDeferred<SliceEnd?>()
    private val connected = CompletableDeferred<Messenger>()
    private val answers = answers(onProgress) { ended.complete(it) }
    private val connection = object : ServiceConnection {
        override fun onServiceConnected(name: ComponentName?, service: IBinder) {
            connected.complete(Messenger(service))
        }

        override fun onServiceDisconnected(name: ComponentName?) = died()

        override fun onBindingDied(name: ComponentName?) = died()

        override fun onNullBinding(name: ComponentName?) = died()
    }

    /** How the slice ended; null where the process died. Cancelled, it asks the process to stop and waits for its last commit. */
    suspend fun train(order: SliceOrder): SliceEnd? {
        val intent = Intent(context, TrainingService::class.java)
        check(context.bindService(intent, connection, Context.BIND_AUTO_CREATE)) {
            "TrainingService: got no binding; expected it in the app's merged manifest. Add the bespoke-android library's manifest."
        }
        try {
            val service = connected.await()
            service.say(Words.START, SliceOrder.serializer(), order, answers)
            try {
                return ended.await()
            } finally {
                if (!ended.isCompleted) stop(service)
            }
        } finally {
            context.unbindService(connection)
        }
    }

    private suspend fun stop(service: Messenger) = withContext(NonCancellable) {
        service.say(Words.STOP, Stop.serializer(), Stop, answers)
        withTimeoutOrNull(STOP_MS) { ended.await() }
    }

    private fun died() {
        ended.complete(null)
    }

    private companion object {
        const val STOP_MS = 8_000L  // what a stopped worker may take; an instruction and a commit take less
    }
}
