// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.android

import android.app.ActivityManager
import android.app.Application
import android.app.job.JobInfo
import android.app.job.JobParameters
import android.app.job.JobScheduler
import android.content.ComponentName
import android.content.Intent
import android.content.ServiceConnection
import android.os.BatteryManager
import android.os.Handler
import android.os.Looper
import androidx.work.Clock
import androidx.work.Configuration
import androidx.work.WorkInfo
import androidx.work.WorkManager
import androidx.work.impl.WorkManagerImpl
import java.time.Duration
import java.util.concurrent.atomic.AtomicLong
import kotlinx.coroutines.job
import kotlinx.coroutines.runBlocking
import org.robolectric.Robolectric
import org.robolectric.Shadows.shadowOf
import org.robolectric.android.controller.ServiceController
import org.robolectric.annotation.Implementation
import org.robolectric.annotation.Implements
import org.robolectric.annotation.RealObject
import org.robolectric.shadows.ShadowActivityManager
import org.robolectric.shadows.ShadowJobScheduler
import org.robolectric.shadows.ShadowPowerManager
import org.robolectric.util.ReflectionHelpers

/**
 * An app with the real WorkManager, a clock that the test moves, and what the system does about [TrainingService]: it makes the service for
 * the first binding and ends it after the last one. The service runs in the test's process; KilledProcessTest has a process of its own.
 */
open class TestApp : Application() {
    private val offset = AtomicLong()
    private val main by lazy { Handler(Looper.getMainLooper()) }
    private val bound = mutableSetOf<ServiceConnection>()
    internal var training: ServiceController<TrainingService>? = null
        private set

    override fun onCreate() {
        super.onCreate()
        memory(available = 4_000_000_000)
        val configuration = Configuration.Builder().setClock(Clock { System.currentTimeMillis() + offset.get() }).build()
        // As WorkManagerTestInitHelper of work-testing does, but with the real schedulers and constraint trackers.
        WorkManagerImpl.setDelegate(WorkManagerImpl(this, configuration))
    }

    override fun bindService(service: Intent, connection: ServiceConnection, flags: Int): Boolean {
        if (service.component?.className != TrainingService::class.java.name) return super.bindService(service, connection, flags)
        main.post {
            val controller = training ?: Robolectric.buildService(TrainingService::class.java).create().also { training = it }
            bound += connection
            connection.onServiceConnected(service.component, checkNotNull(controller.get().onBind(service)))
        }
        return true
    }

    override fun unbindService(connection: ServiceConnection) {
        main.post {
            if (bound.remove(connection) && bound.isEmpty()) {
                val last = training
                training = null  // before destroy(), which also runs what the main looper has queued: a binding may be among it
                last?.get()?.onUnbind(Intent())
                last?.destroy()
            }
        }
    }

    /** The training process ends, as far as the app's process can see. */
    fun trainingDies() {
        val dead = training
        val connections = bound.toList()
        training = null
        bound.clear()
        dead?.destroy()
        runBlocking { dead?.get()?.scope?.coroutineContext?.job?.join() }  // a process that is dead holds no lock
        connections.forEach { it.onServiceDisconnected(ComponentName(this, TrainingService::class.java)) }
    }

    /** The system keeps why a process of this app ended; `subreason`: its own number, of which apps see the words. */
    fun ended(reason: Int, at: Long, description: String? = null, status: Int = 0, subreason: Int = 0, process: String = trainingProcess(this)) {
        val exit = ShadowActivityManager.ApplicationExitInfoBuilder.newBuilder()
            .setProcessName(process).setReason(reason).setTimestamp(at).setStatus(status).setDescription(description).build()
        exit.subReason = subreason
        shadowOf(getSystemService(ActivityManager::class.java)).addApplicationExitInfo(exit)
    }

    fun charging(yes: Boolean) {
        val status = if (yes) BatteryManager.BATTERY_STATUS_CHARGING else BatteryManager.BATTERY_STATUS_DISCHARGING
        @Suppress("DEPRECATION")
        sendStickyBroadcast(
            Intent(Intent.ACTION_BATTERY_CHANGED).putExtra(BatteryManager.EXTRA_STATUS, status).putExtra(BatteryManager.EXTRA_LEVEL, 80).putExtra(BatteryManager.EXTRA_SCALE, 100),
        )
        sendBroadcast(Intent(if (yes) BatteryManager.ACTION_CHARGING else BatteryManager.ACTION_DISCHARGING))
        shadowOf(Looper.getMainLooper()).idle()
    }

    /** How much the system has left until it counts as short of memory. */
    fun memory(available: Long) {
        val info = ActivityManager.MemoryInfo().apply { threshold = 100_000_000; availMem = threshold + available }
        shadowOf(getSystemService(ActivityManager::class.java)).setMemoryInfo(info)
    }

    fun work(name: String = Personalization.NAME): List<WorkInfo> = WorkManager.getInstance(this).getWorkInfosForUniqueWork(name).get()

    /** The one request that is left once the others have ended. */
    fun next(): WorkInfo {
        await("one request that waits") { work().filter { !it.state.isFinished }.map { it.state } == listOf(WorkInfo.State.ENQUEUED) }
        return work().single { !it.state.isFinished }
    }

    fun jobs(): List<JobInfo> = getSystemService(JobScheduler::class.java).allPendingJobs

    fun later(by: Duration) {
        offset.addAndGet(by.toMillis())
        shadowOf(Looper.getMainLooper()).idleFor(by)
    }

    /** Runs the main looper while the real threads work. */
    fun await(what: String, seconds: Int = Integer.getInteger("bespoke.await", 60), condition: () -> Boolean) {
        val end = System.nanoTime() + seconds * 1_000_000_000L
        while (!condition()) {
            check(System.nanoTime() < end) { "waited for: $what; now ${work()} ${work(Personalization.NOW)}" }
            shadowOf(Looper.getMainLooper()).idle()
            Thread.sleep(5)
        }
    }
}

internal fun parameters(job: JobInfo, stop: Int = 0): JobParameters {
    val parameters = ReflectionHelpers.newInstance(JobParameters::class.java)
    ReflectionHelpers.setField(parameters, "jobId", job.id)
    ReflectionHelpers.setField(parameters, "extras", job.extras)
    ReflectionHelpers.setField(parameters, "mStopReason", stop)
    return parameters
}

/** Robolectric 4.16 gives every namespace a scheduler of its own, a new one at each call; WorkManager's jobs would be lost. */
@Implements(className = "android.app.JobSchedulerImpl", isInAndroidSdk = false)
class OneJobScheduler : ShadowJobScheduler.ShadowJobSchedulerImpl() {
    @RealObject lateinit var real: JobScheduler

    @Implementation fun forNamespace(@Suppress("UNUSED_PARAMETER") namespace: String): JobScheduler = real
}

/** With the thermal headroom that a test sets. */
@Implements(android.os.PowerManager::class)
class HotPowerManager : ShadowPowerManager() {
    @Implementation fun getThermalHeadroom(@Suppress("UNUSED_PARAMETER") seconds: Int): Float = headroom

    companion object {
        @Volatile var headroom = 0f
    }
}
