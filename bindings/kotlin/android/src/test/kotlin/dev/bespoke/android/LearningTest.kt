// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.android

import android.app.ApplicationExitInfo
import android.app.job.JobParameters
import android.content.ComponentCallbacks2
import android.os.PowerManager
import android.os.UserManager
import androidx.work.WorkInfo
import androidx.work.impl.background.systemjob.SystemJobService
import dev.bespoke.TrainReportStoppedBecause
import java.io.File
import java.time.Duration
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.flow.MutableStateFlow
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import org.junit.After
import org.junit.Assert.assertEquals
import org.junit.Assert.assertFalse
import org.junit.Assert.assertNull
import org.junit.Assert.assertThrows
import org.junit.Assert.assertTrue
import org.junit.Before
import org.junit.Test
import org.junit.runner.RunWith
import org.robolectric.Robolectric
import org.robolectric.RobolectricTestRunner
import org.robolectric.RuntimeEnvironment
import org.robolectric.Shadows.shadowOf

/** Learning in the background, by the real WorkManager and the real device core, on a run of [STEPS] steps. */
@RunWith(RobolectricTestRunner::class)
class LearningTest {
    private val app get() = RuntimeEnvironment.getApplication() as TestApp
    private val user by lazy { User(app) }
    private val learning get() = user.learning
    private val kept get() = user.kept
    private val budgets by lazy { user.opened { it.plannedTraining() }.filter { it.method == "mesp" }.map { it.memoryBytes } }

    @Before
    fun notes() {
        HotPowerManager.headroom = 0f
        app.charging(false)
        user.addNotes()
    }

    @After
    fun leave() = user.leave()

    @Test
    fun `it waits for the charger and an idle device, and a run that has ended rests`() {
        Personalization.schedule(app, learning.copy(whenIdle = true))
        app.await("a system job") { app.jobs().isNotEmpty() }
        val job = app.jobs().single()
        assertTrue(job.isRequireCharging && job.isRequireDeviceIdle && job.isRequireBatteryNotLow && job.isRequireStorageNotLow)
        app.charging(true)
        Thread.sleep(200)
        assertEquals("only the system knows idle", listOf(WorkInfo.State.ENQUEUED), app.work().map { it.state })
        assertNull(user.run())

        assertTrue(Robolectric.buildService(SystemJobService::class.java).create().get().onStartJob(parameters(job)))
        app.await("a slice") { kept.last != null }
        assertEquals(STEPS, kept.last!!.totalSteps)
        assertEquals(kept.last!!.accepted, user.opened { it.versions() }.isNotEmpty())
        val next = app.next()
        assertEquals(Duration.ofHours(learning.restHours).toMillis(), next.initialDelayMillis)
        assertEquals("a new request, not a retry", 0, next.runAttemptCount)
    }

    @Test
    fun `without the charger it stops, and with it goes on where it stood`() {
        HotPowerManager.headroom = SLOW
        app.charging(true)
        Personalization.schedule(app, learning)
        user.running()
        app.charging(false)
        user.idle()
        val stopped = checkNotNull(user.run())
        assertTrue("${stopped.step} steps are kept", stopped.step in 1 until STEPS)
        HotPowerManager.headroom = 0f
        app.charging(true)
        app.later(Duration.ofSeconds(10))  // a stop counts as an attempt
        app.await("the end of the run") { kept.last?.totalSteps == STEPS }
        assertEquals(STEPS - stopped.step, kept.last!!.steps)
        assertNull(user.run())
    }

    @Test
    fun `scheduling again changes nothing, and other settings take the place`() {
        Personalization.schedule(app, learning)
        app.await("a request") { app.work().isNotEmpty() }
        val first = app.work().single().id
        Personalization.schedule(app, learning)
        Thread.sleep(200)
        assertEquals(listOf(first), app.work().map { it.id })
        Personalization.schedule(app, learning.copy(whenIdle = true))
        app.await("another request") { app.work().single().id != first }
        assertTrue(app.work().single().constraints.requiresDeviceIdle())
    }

    @Test
    fun `what is cancelled ends committed and stays off`() {
        HotPowerManager.headroom = SLOW
        app.charging(true)
        Personalization.schedule(app, learning)
        user.running()
        Personalization.cancel(app)
        user.idle()
        assertTrue(checkNotNull(user.run()).step > 0)
        assertTrue(user.status() is LearningStatus.Off)
        app.later(Duration.ofDays(2))
        assertTrue(app.work().all { it.state.isFinished })
    }

    @Test
    fun `a job that the system ends comes back`() {
        HotPowerManager.headroom = SLOW
        Personalization.schedule(app, learning.copy(whenIdle = true))
        app.charging(true)
        app.await("a system job") { app.jobs().isNotEmpty() }
        val job = app.jobs().single()
        val service = Robolectric.buildService(SystemJobService::class.java).create().get()
        assertTrue(service.onStartJob(parameters(job)))
        user.running()
        assertTrue("asks to be rescheduled", service.onStopJob(parameters(job, JobParameters.STOP_REASON_TIMEOUT)))
        user.idle()
        assertTrue(checkNotNull(user.run()).step > 0)
        assertEquals(listOf(WorkInfo.State.ENQUEUED), app.work().map { it.state })
    }

    @Test
    fun `a slice ends by its own deadline, and the next one follows at once`() {
        HotPowerManager.headroom = SLOW
        app.charging(true)
        Personalization.schedule(app, learning.copy(sliceSeconds = 1.0))
        app.await("a slice") { kept.last != null }
        val first = kept.last!!
        assertEquals(TrainReportStoppedBecause.DEADLINE, first.stoppedBecause)
        assertTrue(first.totalSteps < STEPS)
        app.await("the next one") { kept.last!!.totalSteps > first.totalSteps }
    }

    @Test
    fun `the app sees what waits, runs and was done`() {
        assertEquals(LearningStatus.Off(null), user.status())
        Personalization.schedule(app, learning)
        app.await("waiting") { user.status() == LearningStatus.Waiting(null) }
        HotPowerManager.headroom = SLOW
        app.charging(true)
        val at = user.running()
        assertTrue(at.steps == STEPS && at.loss != null && at.addedBytes > 0 && at.limitBytes!! <= budgets[0]!!)
        HotPowerManager.headroom = 0f
        app.await("the end") { (user.status() as? LearningStatus.Waiting)?.last?.totalSteps == STEPS }
        val last = user.status().last!!
        assertEquals("mesp", last.method)
        assertTrue(last.lastLoss!! < last.firstLoss!! && last.bytesWritten > 0 && last.seconds > 0)
        assertEquals(last.accepted == true, last.refusedBecause == null)
        assertTrue("what counts against the limit", last.idleBytes > 0 && last.addedBytes in 1..last.limitBytes!!)
    }

    @Test
    fun `what cannot be done is said, and not tried again`() {
        app.charging(true)
        val elsewhere = learning.copy(bundle = learning.bundle.copy(path = "/nowhere/chat.bundle"))
        Personalization.schedule(app, elsewhere)
        app.await("the end") { app.work().single().state == WorkInfo.State.FAILED }
        assertTrue((user.status() as LearningStatus.Off).failure!!.contains("/nowhere/chat.bundle"))
    }

    @Test
    fun `in power save it pauses`() {
        HotPowerManager.headroom = SLOW
        app.charging(true)
        Personalization.schedule(app, learning)
        user.running()
        shadowOf(app.getSystemService(PowerManager::class.java)).setIsPowerSaveMode(true)
        paused(Pause.POWER_SAVE)
        assertTrue(checkNotNull(user.run()).step > 0)
    }

    @Test
    fun `a state that another process trains is waited for`() {
        val lock = File(Place(app, learning.name).state, "trainer.lock").path
        val other = ProcessBuilder("flock", "--no-fork", lock, "sleep", "600").start()
        app.await("its lock") { ProcessBuilder("flock", "--nonblock", lock, "true").start().waitFor() != 0 }
        app.charging(true)
        Personalization.schedule(app, learning)
        paused(Pause.BUSY)
        other.destroy()
        other.waitFor()
        app.later(Duration.ofMinutes(15))
        app.await("the end of the run") { kept.last?.totalSteps == STEPS }
    }

    @Test
    fun `a hot device pauses`() {
        HotPowerManager.headroom = SLOW
        app.charging(true)
        Personalization.schedule(app, learning)
        user.running()
        HotPowerManager.headroom = 1.1f
        paused(Pause.HOT)
        HotPowerManager.headroom = 0f
        app.later(Duration.ofMinutes(15))
        app.await("the end of the run") { kept.last?.totalSteps == STEPS }
    }

    @Test
    fun `where the system wants memory back the limit falls to what the smallest plans take`() {
        HotPowerManager.headroom = SLOW
        app.charging(true)
        Personalization.schedule(app, learning)
        user.running()
        @Suppress("DEPRECATION")
        app.training!!.get().onTrimMemory(ComponentCallbacks2.TRIM_MEMORY_RUNNING_LOW)
        val smallest = user.opened { it.plannedTraining() }.filter { it.method == "mesp" }.minOf { it.peakBytes }
        app.await("the lower limit") { (user.status() as? LearningStatus.Running)?.limitBytes == smallest }
        HotPowerManager.headroom = 0f
        app.await("the end of the run") { kept.last?.totalSteps == STEPS }
    }

    @Test
    fun `with little memory left it trains by the plans that have room`() {
        app.charging(true)
        app.memory(available = budgets[2]!! + 1_000_000)
        Personalization.schedule(app, learning)
        app.await("the end of the run") { kept.last?.totalSteps == STEPS }
        assertEquals(budgets[2], kept.last!!.plannedForBytes)
    }

    @Test
    fun `where no plan has room it pauses`() {
        app.charging(true)
        app.memory(available = 1)
        Personalization.schedule(app, learning)
        paused(Pause.MEMORY)
    }

    @Test
    fun `each memory kill takes smaller plans, the third one a run of forward passes, and two clean slices climb again`() {
        HotPowerManager.headroom = SLOW
        app.charging(true)
        Personalization.schedule(app, learning)
        val limiterBefore37_2 = ApplicationExitInfo.REASON_OTHER to "MemoryLimiter:AnonSwap"
        for ((before, how) in listOf(ApplicationExitInfo.REASON_LOW_MEMORY to null, limiterBefore37_2, 17 to null).withIndex()) {
            val kills = before + 1
            assertEquals(budgets[before], user.running().limitBytes)
            died(how.first, how.second)
            app.await("the next slice") { kept.ladder.rung == kills }
        }
        Personalization.schedule(app, learning.copy(sliceSeconds = 1.0))
        app.await("a slice by forward passes") { kept.last?.method == "mezo" }
        assertTrue(kept.last!!.isLastResort)
        assertEquals(2, kept.last!!.run)
        app.await("two clean slices") { kept.ladder.rung == 2 }
    }

    @Test
    fun `a process that dies is followed by another, and one that crashes three times is not`() {
        HotPowerManager.headroom = SLOW
        app.charging(true)
        Personalization.schedule(app, learning)
        for (crash in 1..3) {
            user.running()
            died(ApplicationExitInfo.REASON_CRASH_NATIVE)
            user.idle()
        }
        app.await("the end") { app.work().any { it.state == WorkInfo.State.FAILED } }
        assertTrue((user.status() as LearningStatus.Off).failure!!.contains("crashed 3 times"))
        Personalization.schedule(app, learning)  // what somebody asks for is tried again
        user.running()
    }

    @Test
    fun `nothing is read before the first unlock`() {
        shadowOf(app.getSystemService(UserManager::class.java)).setUserUnlocked(false)
        assertThrows(IllegalStateException::class.java) { Personalization.schedule(app, learning) }
        shadowOf(app.getSystemService(UserManager::class.java)).setUserUnlocked(true)
    }

    @Test
    fun `forgetting everything stops what runs and leaves no file`() {
        HotPowerManager.headroom = SLOW
        app.charging(true)
        Personalization.schedule(app, learning)
        user.running()
        val folder = Place(app, learning.name).state.parentFile!!
        assertTrue(folder.path.startsWith(app.noBackupFilesDir.path) && folder.exists())
        var deleted: Boolean? = null
        Thread { deleted = runBlocking { Personalization.forgetEverything(app, learning) } }.start()
        app.await("deleted") { deleted != null }
        assertEquals(true, deleted)
        assertFalse(folder.exists())
    }

    @Test
    fun `who follows the status is told that everything was forgotten`() {
        app.charging(true)
        Personalization.schedule(app, learning)
        app.await("the end of the run") { kept.last?.totalSteps == STEPS }
        user.idle()
        val told = MutableStateFlow<LearningStatus?>(null)
        val following = CoroutineScope(Dispatchers.Default).launch { Personalization.status(app, learning).collect { told.value = it } }
        app.await("the run in the status") { told.value?.last?.totalSteps == STEPS }
        var deleted = false
        Thread { deleted = runBlocking { Personalization.forgetEverything(app, learning) } }.start()
        app.await("deleted") { deleted }
        app.await("who follows is told") { told.value == LearningStatus.Off(null) }
        following.cancel()
        assertFalse("nor does asking make a folder", Place(app, learning.name).state.parentFile!!.exists())
    }

    @Test
    fun `without an example it waits for one, and not as long as after a run`() {
        user.opened { model -> model.examples.list().forEach { model.examples.forget(it.id) } }
        app.charging(true)
        Personalization.schedule(app, learning)
        paused(Pause.NO_EXAMPLES)
        assertNull(kept.last)
        user.addNotes()
        app.later(Duration.ofMinutes(15))
        app.await("the end of a run") { kept.last?.totalSteps == STEPS }
    }

    @Test
    fun `an error of the state is said and tried again later, and what was wrong for a while does not end learning`() {
        val right = user.damageState()
        app.charging(true)
        Personalization.schedule(app, learning)
        app.await("an error") { kept.pause == Pause.ERROR }
        assertEquals(Duration.ofMinutes(15).toMillis(), app.next().initialDelayMillis)
        val status = user.status() as LearningStatus.Waiting
        assertEquals(Pause.ERROR, status.pause)
        assertTrue(status.failure!!, status.failure!!.contains("state.sqlite"))
        right()
        app.later(Duration.ofMinutes(15))
        app.await("the end of the run") { kept.last?.totalSteps == STEPS }
        app.await("no word of it any more") { (user.status() as? LearningStatus.Waiting)?.let { it.pause ?: it.failure } == null }
        assertEquals(0, kept.failures)
    }

    @Test
    fun `an error that stays ends learning at the third time, with the reason`() {
        user.damageState()
        app.charging(true)
        Personalization.schedule(app, learning)
        for (time in 1..2) {
            app.await("error $time") { kept.failures == time }
            app.next()
            app.later(Duration.ofMinutes(15))
        }
        app.await("the end") { app.work().any { it.state == WorkInfo.State.FAILED } }
        assertTrue((user.status() as LearningStatus.Off).failure!!.contains("state.sqlite"))
        Personalization.schedule(app, learning)  // what somebody asks for is tried again
        app.await("another try") { kept.failures == 1 }
    }

    private fun paused(why: Pause) {
        app.await("a pause") { kept.pause == why }
        assertEquals(Duration.ofMinutes(15).toMillis(), app.next().initialDelayMillis)
        assertEquals(LearningStatus.Waiting(kept.last, why), user.status())
    }

    /** The training process ends within a slice. */
    private fun died(reason: Int, description: String? = null) {
        app.ended(reason, at = System.currentTimeMillis(), description)
        app.trainingDies()
    }
}
