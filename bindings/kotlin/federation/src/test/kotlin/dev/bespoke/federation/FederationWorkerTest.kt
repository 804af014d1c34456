// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.federation

import android.net.NetworkCapabilities
import android.os.Looper
import androidx.work.WorkInfo
import androidx.work.WorkManager
import dev.bespoke.PersonalModel
import dev.bespoke.android.AppBundle
import dev.bespoke.android.Learning
import dev.bespoke.android.Personalization
import java.io.File
import java.nio.file.Files
import java.time.Duration
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.runBlocking
import org.junit.After
import org.junit.Assert.assertEquals
import org.junit.Assert.assertFalse
import org.junit.Assert.assertThrows
import org.junit.Assert.assertTrue
import org.junit.Test
import org.junit.runner.RunWith
import org.robolectric.RobolectricTestRunner
import org.robolectric.RuntimeEnvironment
import org.robolectric.Shadows.shadowOf

/** Taking part by the real WorkManager, with a real server. */
@RunWith(RobolectricTestRunner::class)
class FederationWorkerTest {
    private val app get() = RuntimeEnvironment.getApplication() as TestApp
    private val place: File = Files.createTempDirectory("worker").toFile()
    private val edge by lazy { Edge(File(place, "edge"), rounds = 100, devices = 1) }
    private val learning = Learning(AppBundle(path = Federated.bundle.path, requireAuthenticated = false))
    private val together by lazy { LearningTogether(learning, edge.url, edge.token()) }

    @After
    fun leave() {
        WorkManager.getInstance(app).cancelAllWork().result.get()
        shadowOf(Looper.getMainLooper()).idle()
        app.await("an end") { FederationWorker.turns.value == 0 }
        edge.close()
        place.deleteRecursively()
    }

    private fun <T> open(block: suspend (PersonalModel) -> T): T = runBlocking { Personalization.open(app, learning).use { block(it) } }

    private fun join() = open {
        addExamples(it)
        it.federation.join()
    }

    private fun schedule(what: LearningTogether = together) = Together.schedule(app, what)

    /** While the main looper, which WorkManager needs, goes on. */
    private fun <T> later(block: suspend () -> T): T = runBlocking {
        val done = async(Dispatchers.IO) { block() }
        app.await("a call") { done.isCompleted }
        done.await()
    }

    private fun work() = WorkManager.getInstance(app).getWorkInfosForUniqueWork(Together.work(together)).get()

    private fun status() = open { model -> later { Together.status(app, together, model) } }

    /** One time, to its end. How long until the next one; null: there is none. */
    private fun turn(): Duration? {
        val first = work().single { !it.state.isFinished }.id
        app.startJob()
        app.await("an end of ${work()}") { WorkManager.getInstance(app).getWorkInfoById(first).get().let { it == null || it.state.isFinished } && FederationWorker.turns.value == 0 }
        val next = work().firstOrNull { !it.state.isFinished } ?: return null
        app.await("what comes next") { work().any { it.state == WorkInfo.State.ENQUEUED } }
        return Duration.ofMillis(next.initialDelayMillis)
    }

    private fun counted() = edge.rows("SELECT count(*), count(DISTINCT round) FROM numbers").single()

    @Test
    fun `before the user has joined nothing is made and nothing is sent`() {
        schedule()
        app.await("a system job") { app.jobs().isNotEmpty() }
        val job = app.jobs().single()
        assertTrue(job.requiredNetwork!!.hasCapability(NetworkCapabilities.NET_CAPABILITY_NOT_METERED))
        assertTrue(job.isRequireCharging && job.isRequireDeviceIdle && job.isRequireBatteryNotLow && job.isRequireStorageNotLow)
        assertEquals(null, turn())
        assertTrue(StandInKeyStore.keys.isEmpty())
        assertEquals(emptyList<String>(), edge.rows("SELECT 1 FROM devices"))
        val status = status()
        assertFalse(status.federation.joined || status.isLetIn || status.isScheduled)
    }

    @Test
    fun `once a day one round is measured`() {
        join()
        schedule()
        assertTrue(turn()!! in Duration.ofHours(23)..Duration.ofHours(24))
        assertEquals("1 1", counted())
        val status = status()
        assertEquals(listOf(1L, 0L), listOf(status.federation.roundsSent, status.federation.pending))
        assertTrue(status.federation.epsilonSpent!! > 0)
        assertTrue(status.traffic.bytesSent > 0 && status.traffic.bytesReceived > 0)
        assertTrue(status.isLetIn && status.isScheduled)

        schedule()  // at the next start of the app: nothing changes
        schedule(together.copy(whenIdle = false, token = null))  // other settings, within the day
        assertTrue(turn()!! in Duration.ofHours(23)..Duration.ofHours(24))
        assertEquals("1 1", counted())

        app.later(24 * 3600)
        assertTrue(turn()!! > Duration.ofHours(23))
        assertEquals("2 2", counted())
    }

    @Test
    fun `a round that was measured by a process that was killed counts for the day`() {
        join()
        val client = FederationClient(together.server, Together.device(app, together))
        open { model ->
            client.enrol(together.token!!)
            val request = model.federation.request()
            model.federation.respond(request, client.ask(request.body))
            assertEquals(1L, model.federation.takePart().measured)
        }
        schedule()
        assertTrue(turn()!! > Duration.ofHours(23))
        assertEquals("1 1", counted())
        assertEquals(0L, status().federation.pending)
    }

    @Test
    fun `without a token that is good it ends and says why`() {
        join()
        schedule(together.copy(token = null))
        assertEquals(null, turn())
        assertTrue(status().failure!!, "got no token" in status().failure!!)
        schedule(together.copy(token = "x".repeat(43)))
        assertEquals(null, turn())
        assertTrue(status().failure!!, "a token that nobody was given" in status().failure!!)
        schedule()
        turn()
        assertEquals("1 1", counted())
    }

    @Test
    fun `a server that knows the device no more lets it in again by a token`() {
        join()
        Together.device(app, together).letInBy(edge.url)  // as with a server that has lost its state
        schedule()
        assertEquals(null, turn())
        assertTrue(status().failure!!, "device" in status().failure!!)
        schedule()
        assertTrue(turn()!! > Duration.ofHours(23))
        assertEquals("1 1", counted())
    }

    @Test
    fun `a server that cannot be reached is asked again later`() {
        join()
        edge.close()
        schedule(LearningTogether(learning, "http://127.0.0.1:1", "token"))
        assertEquals(Duration.ofMinutes(15), turn())
        assertTrue(status().isScheduled)
    }

    @Test
    fun `who leaves has no key any more, and nothing goes on`() {
        join()
        schedule()
        turn()
        assertEquals(1, StandInKeyStore.keys.size)
        open { model -> later { Together.leave(app, together, model) } }
        assertTrue(StandInKeyStore.keys.isEmpty())
        assertFalse(File(app.noBackupFilesDir, "bespoke-federation/user/device.json").exists())
        val status = status()
        assertFalse(status.federation.joined || status.isLetIn || status.isScheduled)
        assertEquals(Traffic(0, 0), status.traffic)
        assertTrue(work().none { !it.state.isFinished })
    }

    @Test
    fun `what cannot be asked for is said at once`() {
        assertThrows(IllegalArgumentException::class.java) { LearningTogether(learning, "http://example.com") }
        assertThrows(IllegalArgumentException::class.java) { LearningTogether(learning, "https://example.com", rounds = 0) }
        assertThrows(IllegalArgumentException::class.java) { LearningTogether(learning, "https://example.com", seconds = 0.0) }
        assertThrows(IllegalArgumentException::class.java) { LearningTogether(learning, "https://example.com", restHours = -1) }
        assertThrows(IllegalArgumentException::class.java) { Together.device(app, LearningTogether(learning.copy(name = "../x"), "https://example.com")) }
    }
}
