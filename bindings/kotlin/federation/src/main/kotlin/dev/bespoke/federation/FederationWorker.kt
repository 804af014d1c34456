// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.federation

import android.content.Context
import androidx.work.CoroutineWorker
import androidx.work.ExistingWorkPolicy
import androidx.work.WorkManager
import androidx.work.WorkerParameters
import androidx.work.workDataOf
import dev.bespoke.BespokeError
import dev.bespoke.BudgetExceeded
import dev.bespoke.Busy
import dev.bespoke.Cancelled
import dev.bespoke.DiskFull
import dev.bespoke.PersonalModel
import dev.bespoke.StateLocked
import dev.bespoke.Unavailable
import dev.bespoke.android.Personalization
import java.io.IOException
import java.security.GeneralSecurityException
import java.security.ProviderException
import java.time.Duration
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.flow.MutableStateFlow
import kotlinx.coroutines.flow.update
import kotlinx.coroutines.withContext

/**
 * Takes part once, and at its end asks WorkManager for the next time. It does nothing without the user's consent. Constraints that are
 * lost, a cancellation and the system's time-out end it at the next instruction; what was measured is kept and sent the next time.
 * A problem that stays ends it with the reason, until the app calls [Together.schedule] again.
 */
internal class FederationWorker(context: Context, parameters: WorkerParameters) : CoroutineWorker(context, parameters) {
    private val together = LearningTogether.of(inputData)

    override suspend fun doWork(): Result = withContext(Dispatchers.Default) {
        turns.update { it + 1 }
        try {
            val next = try {
                Personalization.open(applicationContext, together.learning).use { turn(it) }
            } catch (refused: ServerError) {
                // A server that knows this device no more: with another token it may again.
                if (refused.status == UNKNOWN) Together.device(applicationContext, together).letInBy(null)
                if (refused.status in FOR_GOOD) return@withContext failed(refused)
                maxOf(SOON, Duration.ofSeconds(refused.retrySeconds))
            } catch (problem: BespokeError) {
                if (isForGood(problem)) return@withContext failed(problem)
                SOON
            } catch (_: IOException) {
                SOON
            } catch (_: GeneralSecurityException) {  // a key store that is busy says so
                SOON
            } catch (_: ProviderException) {
                SOON
            } catch (cancelled: CancellationException) {
                throw cancelled
            } catch (problem: IllegalStateException) {  // a bundle that is not there, a copy without room
                return@withContext failed(problem)
            }
            // A new request and not a retry, whose waiting time would grow from time to time.
            next?.let { Together.enqueue(applicationContext, together, it, ExistingWorkPolicy.APPEND_OR_REPLACE) }
            Result.success()
        } finally {
            turns.update { it - 1 }
        }
    }

    /** From this time to the next one; null: there is none. */
    private suspend fun turn(model: PersonalModel): Duration? {
        if (!model.federation.status().joined) return null
        val client = FederationClient(together.server, Together.device(applicationContext, together))
        if (client.device.server != client.server) {
            client.enrol(together.token ?: throw withoutToken(client.server))
        }
        val learned = carry(model, client, if (left(model) == 0L) together.rounds else 0, together.seconds)
        if (learned.done) return null
        val rest = left(model)
        return if (rest > 0) Duration.ofMillis(rest) else maxOf(SOON, Duration.ofMillis((learned.waitSeconds * MILLISECONDS).toLong()))
    }

    private suspend fun left(model: PersonalModel): Long {
        val now = WorkManager.getInstance(applicationContext).configuration.clock.currentTimeMillis()
        val rounds = model.federation.status().roundsSent
        return Place(applicationContext, together.learning.name).quota.left(rounds, now, Duration.ofHours(together.restHours).toMillis())
    }

    private fun failed(why: RuntimeException) = Result.failure(workDataOf(FAILURE to why.message.orEmpty().take(MOST_CHARACTERS)))

    internal companion object {
        const val FAILURE = "failure"
        private const val FORBIDDEN = 403
        private const val UNKNOWN = 401
        private val FOR_GOOD = setOf(400, UNKNOWN, FORBIDDEN, 413)  // of server/README.md; what was lost or is too early is asked for again
        private val SOON: Duration = Duration.ofMinutes(15)
        private const val MILLISECONDS = 1e3
        private const val MOST_CHARACTERS = 2000  // WorkManager takes 10,240 bytes of what a worker says, and a character has up to 3

        /** Workers that take part or end now: one that was cancelled counts until its model is closed. */
        val turns = MutableStateFlow(0)

        private fun withoutToken(server: String) =
            ServerError(server, "no token", "one, since this server has not let this device in yet", "Call Together.schedule with a token.", FORBIDDEN)

        private fun isForGood(problem: BespokeError) = when (problem) {
            is BudgetExceeded, is Busy, is Cancelled, is DiskFull, is StateLocked, is Unavailable -> false
            else -> true
        }
    }
}
