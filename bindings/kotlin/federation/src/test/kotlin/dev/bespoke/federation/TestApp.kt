// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.federation

import android.app.Application
import android.app.job.JobInfo
import android.app.job.JobParameters
import android.app.job.JobScheduler
import android.os.Looper
import androidx.work.Clock
import androidx.work.Configuration
import androidx.work.impl.WorkManagerImpl
import androidx.work.impl.background.systemjob.SystemJobService
import java.util.concurrent.atomic.AtomicLong
import org.robolectric.Robolectric
import org.robolectric.Shadows.shadowOf
import org.robolectric.annotation.Implementation
import org.robolectric.annotation.Implements
import org.robolectric.annotation.RealObject
import org.robolectric.shadows.ShadowJobScheduler
import org.robolectric.util.ReflectionHelpers

/** An app with the real WorkManager and a clock that the test moves. The system's part, to start a job in its time, is the test's. */
class TestApp : Application() {
    private val offset = AtomicLong()
    private var started: Int? = null

    override fun onCreate() {
        super.onCreate()
        StandInKeyStore.begin()
        // As WorkManagerTestInitHelper of work-testing does, but with the real schedulers.
        val configuration = Configuration.Builder().setClock(Clock { System.currentTimeMillis() + offset.get() }).build()
        WorkManagerImpl.setDelegate(WorkManagerImpl(this, configuration))
    }

    fun jobs(): List<JobInfo> = getSystemService(JobScheduler::class.java).allPendingJobs

    /**
     * What the job waits for is there. WorkManager says that work waits before it takes its last job back and asks for the next one, which
     * has another id: between the two there is none.
     */
    fun startJob() {
        lateinit var job: JobInfo
        await("a system job") { jobs().singleOrNull()?.takeIf { it.id != started }?.let { job = it } != null }
        started = job.id
        val parameters = ReflectionHelpers.newInstance(JobParameters::class.java)
        ReflectionHelpers.setField(parameters, "jobId", job.id)
        ReflectionHelpers.setField(parameters, "extras", job.extras)
        check(Robolectric.buildService(SystemJobService::class.java).create().get().onStartJob(parameters))
    }

    fun later(seconds: Long) {
        offset.addAndGet(seconds * 1000)
        shadowOf(Looper.getMainLooper()).idleFor(java.time.Duration.ofSeconds(seconds))
    }

    /** Runs the main looper while the real threads work. */
    fun await(what: String, seconds: Int = Integer.getInteger("bespoke.await", 60), condition: () -> Boolean) {
        val end = System.nanoTime() + seconds * 1_000_000_000L
        while (!condition()) {
            check(System.nanoTime() < end) { "waited for: $what" }
            shadowOf(Looper.getMainLooper()).idle()
            Thread.sleep(5)
        }
    }
}

/** Robolectric 4.16 gives every namespace a scheduler of its own, a new one at each call; WorkManager's jobs would be lost. */
@Implements(className = "android.app.JobSchedulerImpl", isInAndroidSdk = false)
class OneJobScheduler : ShadowJobScheduler.ShadowJobSchedulerImpl() {
    @RealObject lateinit var real: JobScheduler

    @Implementation fun forNamespace(@Suppress("UNUSED_PARAMETER") namespace: String): JobScheduler = real
}
