// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.notes

import android.content.Context
import dev.bespoke.PersonalModel
import dev.bespoke.android.Learning
import dev.bespoke.android.Personalization
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.sync.Mutex
import kotlinx.coroutines.sync.withLock
import kotlinx.coroutines.withContext

/**
 * The user's model, and beside it the same bundle with a state that nothing is ever added to: what answers as the app came. Each is opened
 * when it is first needed. One use at a time: so nobody closes what another one uses.
 */
class Models(private val context: Context, private val learning: Learning) {
    private val alone = Mutex()
    private var users: PersonalModel? = null
    private var untaught: PersonalModel? = null

    suspend fun <T> users(block: suspend (PersonalModel) -> T): T = alone.withLock {
        block(users ?: Personalization.open(context, learning).also { users = it })
    }

    suspend fun <T> untaught(block: suspend (PersonalModel) -> T): T = alone.withLock {
        block(untaught ?: Personalization.open(context, learning.copy(name = UNTAUGHT)).also { untaught = it })
    }

    /** No model is open while this runs. */
    suspend fun <T> closed(block: suspend () -> T): T = alone.withLock {
        withContext(Dispatchers.IO) {
            users?.close()
            untaught?.close()
        }
        users = null
        untaught = null
        block()
    }

    private companion object {
        const val UNTAUGHT = "untaught"
    }
}
