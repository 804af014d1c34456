// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.android

import android.app.NotificationManager
import android.content.Intent
import android.content.pm.ServiceInfo
import android.os.Looper
import android.os.PowerManager
import androidx.work.WorkInfo
import androidx.work.impl.foreground.SystemForegroundService
import org.junit.After
import org.junit.Assert.assertEquals
import org.junit.Assert.assertTrue
import org.junit.Before
import org.junit.Test
import org.junit.runner.RunWith
import org.robolectric.Robolectric
import org.robolectric.RobolectricTestRunner
import org.robolectric.RuntimeEnvironment
import org.robolectric.Shadows.shadowOf
import org.robolectric.android.controller.ServiceController

/** Learning that the user waits for: without charger, with a notification. */
@RunWith(RobolectricTestRunner::class)
class LearnNowTest {
    private val app get() = RuntimeEnvironment.getApplication() as TestApp
    private val user by lazy { User(app) }
    private var shown: ServiceController<SystemForegroundService>? = null

    @Before
    fun notes() {
        HotPowerManager.headroom = SLOW
        app.charging(false)
        user.addNotes()
    }

    @After
    fun leave() {
        user.leave()
        shown?.destroy()
    }

    @Test
    fun `it trains at once, shows how far it is, and ends with the run`() {
        Personalization.learnNow(app, user.learning)
        val service = foreground()
        assertEquals(ServiceInfo.FOREGROUND_SERVICE_TYPE_DATA_SYNC, service.foregroundServiceType)
        user.running()
        val manager = shadowOf(app.getSystemService(NotificationManager::class.java))
        app.await("progress in the notification") {
            drive()
            manager.allNotifications.any { it.extras.getInt("android.progress") > 0 && it.extras.getInt("android.progressMax") == STEPS.toInt() }
        }
        assertEquals(user.learning.texts.title, manager.allNotifications.single().extras.getString("android.title"))
        HotPowerManager.headroom = 0f
        app.await("the end") { app.work(Personalization.NOW).all { it.state == WorkInfo.State.SUCCEEDED } }
        assertEquals(STEPS, user.kept.last!!.totalSteps)
    }

    @Test
    fun `the notification's button stops it, committed`() {
        Personalization.learnNow(app, user.learning)
        foreground()
        user.running()
        shadowOf(app.getSystemService(NotificationManager::class.java)).allNotifications.single().actions.single().actionIntent.send()
        app.await("cancelled") { drive(); app.work(Personalization.NOW).single().state == WorkInfo.State.CANCELLED }
        user.idle()
        assertTrue(checkNotNull(user.run()).step > 0)
    }

    @Test
    fun `when the system's time for it is over it ends committed`() {
        Personalization.learnNow(app, user.learning)
        val service = foreground()
        user.running()
        service.onTimeout(1, ServiceInfo.FOREGROUND_SERVICE_TYPE_DATA_SYNC)
        user.idle()
        assertTrue(checkNotNull(user.run()).step > 0)
        assertTrue(app.work(Personalization.NOW).none { it.state == WorkInfo.State.RUNNING })
    }

    @Test
    fun `power save slows it and does not end it`() {
        shadowOf(app.getSystemService(PowerManager::class.java)).setIsPowerSaveMode(true)
        HotPowerManager.headroom = 0f
        Personalization.learnNow(app, user.learning)
        foreground()
        app.await("the end") { user.kept.last?.totalSteps == STEPS }
    }

    @Test
    fun `a slice in the background makes room for it, and waits`() {
        app.charging(true)
        Personalization.schedule(app, user.learning)
        user.running()
        val before = app.work().single { it.state == WorkInfo.State.RUNNING }
        Personalization.learnNow(app, user.learning)
        foreground()
        app.await("the other one has ended") { app.work().first { it.id == before.id }.state.isFinished }
        app.await("it waits") { user.kept.pause == Pause.BUSY }
        HotPowerManager.headroom = 0f
        app.await("the end") { user.kept.last?.totalSteps == STEPS }
        assertEquals("one run, gone on with", 1, user.kept.last!!.run)
    }

    private fun foreground(): SystemForegroundService {
        app.await("the foreground service") { drive(); shown != null }
        return shown!!.get()
    }

    /** What the system does with the intents that start WorkManager's service. */
    private fun drive() = generateSequence { shadowOf(app).nextStartedService }
        .filter { it.component?.className == SystemForegroundService::class.java.name }
        .forEach { intent: Intent ->
            val service = shown ?: Robolectric.buildService(SystemForegroundService::class.java, intent).create().also { shown = it }
            service.get().onStartCommand(intent, 0, 1)
            shadowOf(Looper.getMainLooper()).idle()
        }
}
