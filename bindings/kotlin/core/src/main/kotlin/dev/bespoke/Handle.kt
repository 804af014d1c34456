// SPDX-License-Identifier: Apache-2.0
package dev.bespoke

import java.util.concurrent.locks.ReentrantLock
import kotlin.concurrent.withLock
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.withContext

/**
 * A pointer of the native side with those who use it. [close] closes its children, cancels the calls that compute, waits for all calls
 * and frees the pointer once, whoever calls it and how often; later calls get a [StateError].
 */
internal class Handle(
    private val what: String,
    private val pointer: Long,
    private val parent: Handle? = null,
    private val free: (Long) -> Unit,
) {
    private val lock = ReentrantLock()
    private val changed = lock.newCondition()
    private val cancels = mutableSetOf<Long>()
    private val children = mutableSetOf<Handle>()
    private var users = 0
    private var closing = false
    private var freed = false

    fun <T> use(call: (pointer: Long) -> T): T {
        lock.withLock {
            if (closing) throw closed()
            users++
        }
        try {
            return native { call(pointer) }
        } finally {
            lock.withLock {
                users--
                changed.signalAll()
            }
        }
    }

    /** A call that waits for the disk at most: off the caller's dispatcher. */
    suspend fun <T> stored(call: (pointer: Long) -> T): T = withContext(Dispatchers.IO) { use(call) }

    /** A call that may take long: never on the caller's dispatcher, and cancelled with the coroutine. It has ended when this returns. */
    suspend fun <T> compute(call: (pointer: Long, cancel: Long) -> T): T {
        val cancel = NativeApi.cancelNew()
        try {
            lock.withLock {
                if (closing) throw closed()
                cancels += cancel
            }
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
            lock.withLock { cancels -= cancel }
            NativeApi.cancelFree(cancel)
        }
    }

    /** A handle that [make] opens, and that is closed with this one. */
    fun child(what: String, free: (Long) -> Unit, make: (pointer: Long) -> Long): Handle = use {
        val made = Handle(what, make(it), this, free)
        lock.withLock { children += made }
        made
    }

    fun close() {
        val left = lock.withLock {
            val first = !closing
            closing = true
            cancels.forEach(NativeApi::cancelSet)
            while (users > 0 || (!first && !freed)) changed.await()
            if (!first) return
            children.toList()
        }
        left.forEach(Handle::close)
        free(pointer)
        parent?.run { lock.withLock { children -= this@Handle } }
        lock.withLock {
            freed = true
            changed.signalAll()
        }
    }

    private fun closed() = StateError(ErrorDetails(what, "one that is closed", "one that is open", "Open another one"))
}
