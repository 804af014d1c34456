// SPDX-License-Identifier: Apache-2.0
package dev.bespoke

import java.util.concurrent.atomic.AtomicBoolean
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.withContext

/** A handle of the native side, which refuses calls once it is closed. [close] frees it, however often it is called. */
internal class Handle(private val handle: Long, private val free: (Long) -> Unit) {
    private val closed = AtomicBoolean()

    fun <T> use(call: (handle: Long) -> T): T = native { call(handle) }

    /** A call that waits for the disk at most: off the caller's dispatcher. */
    suspend fun <T> stored(call: (handle: Long) -> T): T = withContext(Dispatchers.IO) { use(call) }

    /** A call that may take long: never on the caller's dispatcher, and cancelled with the coroutine. It has ended when this returns. */
    suspend fun <T> compute(call: (handle: Long, cancel: Long) -> T): T {
        val cancel = NativeApi.cancelNew()
        try {
            return coroutineScope {
                val work = async(Dispatchers.IO) { use { call(it, cancel) } }
                try {
                    work.await()
                } catch (cancelled: CancellationException) {
                    NativeApi.cancelSet(cancel)
                    throw cancelled
                }
            }
        } finally {
            NativeApi.cancelFree(cancel)
        }
    }

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
