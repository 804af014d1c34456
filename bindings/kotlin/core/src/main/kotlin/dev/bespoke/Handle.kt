// SPDX-License-Identifier: Apache-2.0
package dev.bespoke

import java.util.concurrent.atomic.AtomicBoolean
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.suspendCancellableCoroutine
import kotlinx.coroutines.withContext

/** A handle of the native side, which refuses calls once it is closed. [close] frees it, however often it is called. */
internal class Handle(private val handle: Long, val waits: Waits, private val free: (Long) -> Unit) {
    private val closed = AtomicBoolean()

    fun <T> use(call: (handle: Long) -> T): T = native { call(handle) }

    /** A call that waits for the disk at most: off the caller's dispatcher. */
    suspend fun <T> stored(call: (handle: Long) -> T): T = withContext(Dispatchers.IO) { use(call) }

    /** A call that may take long, cancelled with the coroutine. */
    suspend fun <T> call(call: (handle: Long, given: NativeCall) -> T): T = cancellable(waits) { given -> use { call(it, given) } }

    fun close() {
        if (!closed.compareAndSet(false, true)) return
        try {
            native { free(handle) }
        } catch (busy: Busy) {  // from within a call of the model: it stays open
            closed.set(false)
            throw busy
        }
    }
}

/**
 * Never on the caller's dispatcher, and cancelled with the coroutine. The call has ended when this returns. It runs on the one thread that
 * [Dispatchers.IO] gives, because each further change of threads is felt in every token of an answer.
 */
internal suspend fun <T> cancellable(waits: Waits, call: (NativeCall) -> T): T = withContext(Dispatchers.IO) {
    CancelToken().use { token ->
        suspendCancellableCoroutine { waiting ->
            waiting.invokeOnCancellation { token.set() }
            // As a result: what a call that was ended throws does not take the place of the cancellation.
            waiting.resumeWith(runCatching { call(NativeCall(token.handle, 0.0, null, waits.waitSeconds, waits.busySeconds)) })
        }
    }
}

/** Ends a call that runs. A coroutine may be cancelled on another thread in the moment in which its call returns: then nothing is set. */
private class CancelToken : AutoCloseable {
    val handle = NativeApi.cancelNew()
    private var closed = false

    @Synchronized
    fun set() {
        if (!closed) NativeApi.cancelSet(handle)
    }

    @Synchronized
    override fun close() {
        closed = true
        NativeApi.cancelFree(handle)
    }
}
