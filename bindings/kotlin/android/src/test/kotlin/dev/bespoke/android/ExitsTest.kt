// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.android

import android.app.ApplicationExitInfo
import dev.bespoke.android.ExitMeans.CRASH
import dev.bespoke.android.ExitMeans.MEMORY_KILL
import dev.bespoke.android.ExitMeans.OTHER_END
import java.lang.reflect.Modifier
import org.junit.After
import org.junit.Assert.assertEquals
import org.junit.Assert.assertTrue
import org.junit.Test
import org.junit.runner.RunWith
import org.robolectric.RobolectricTestRunner
import org.robolectric.RuntimeEnvironment
import org.robolectric.shadows.ShadowSystemProperties

/** What each end that Android can report says of a plan. Numbers and words are those of AOSP's ApplicationExitInfo, not of the library. */
@RunWith(RobolectricTestRunner::class)
class ExitsTest {
    private val app get() = RuntimeEnvironment.getApplication() as TestApp

    private class End(
        val reason: Int, val means: ExitMeans, val description: String? = null, val subreason: Int = 0, val status: Int = 0,
        val reportsLowMemory: Boolean = true,
    )

    private val ends = listOf(
        End(ApplicationExitInfo.REASON_LOW_MEMORY, MEMORY_KILL),
        End(ApplicationExitInfo.REASON_LOW_MEMORY, MEMORY_KILL, subreason = 30),  // the kernel's killer
        End(17, MEMORY_KILL),  // REASON_MEMORY_LIMITER, from API 37.2 on
        End(ApplicationExitInfo.REASON_OTHER, MEMORY_KILL, "MemoryLimiter:AnonSwap"),  // before
        End(ApplicationExitInfo.REASON_OTHER, MEMORY_KILL, "MemoryLimiter:AnonSwap limit=2048000 used=2100000", subreason = 41),
        End(ApplicationExitInfo.REASON_UNKNOWN, MEMORY_KILL, "MemoryLimiter:AnonSwap"),
        End(ApplicationExitInfo.REASON_OTHER, MEMORY_KILL, "pss=300000", subreason = 6),  // memory pressure
        End(ApplicationExitInfo.REASON_OTHER, MEMORY_KILL, "300MB", subreason = 5),  // large cached
        End(ApplicationExitInfo.REASON_EXCESSIVE_RESOURCE_USAGE, MEMORY_KILL),
        End(ApplicationExitInfo.REASON_EXCESSIVE_RESOURCE_USAGE, OTHER_END, "excessive cpu 90000 during 300000", subreason = 7),
        End(18, MEMORY_KILL),  // REASON_ANOMALY, from API 37.2 on: of a resource
        End(18, OTHER_END, "excessive CPU usage"),
        End(ApplicationExitInfo.REASON_SIGNALED, MEMORY_KILL, status = 9, reportsLowMemory = false),
        End(ApplicationExitInfo.REASON_SIGNALED, OTHER_END, status = 9),
        End(ApplicationExitInfo.REASON_SIGNALED, OTHER_END, status = 15, reportsLowMemory = false),
        End(ApplicationExitInfo.REASON_SIGNALED, CRASH, status = 6),  // abort
        End(ApplicationExitInfo.REASON_SIGNALED, CRASH, status = 7, reportsLowMemory = false),  // a mapped file that was cut off
        End(ApplicationExitInfo.REASON_SIGNALED, CRASH, status = 11),
        End(ApplicationExitInfo.REASON_SIGNALED, CRASH, status = 31),  // a system call that is not allowed
        End(ApplicationExitInfo.REASON_CRASH, CRASH),
        End(ApplicationExitInfo.REASON_CRASH_NATIVE, CRASH),
        End(ApplicationExitInfo.REASON_ANR, CRASH),
        End(ApplicationExitInfo.REASON_INITIALIZATION_FAILURE, CRASH),
        End(ApplicationExitInfo.REASON_USER_REQUESTED, OTHER_END),
        End(ApplicationExitInfo.REASON_USER_REQUESTED, OTHER_END, "fully stop MemoryLimiter", subreason = 21),  // the user's word counts
        End(ApplicationExitInfo.REASON_USER_STOPPED, OTHER_END),
        End(ApplicationExitInfo.REASON_EXIT_SELF, OTHER_END),
        End(ApplicationExitInfo.REASON_DEPENDENCY_DIED, OTHER_END),
        End(ApplicationExitInfo.REASON_PERMISSION_CHANGE, OTHER_END),
        End(ApplicationExitInfo.REASON_FREEZER, OTHER_END, subreason = 20),
        End(ApplicationExitInfo.REASON_PACKAGE_STATE_CHANGE, OTHER_END),
        End(ApplicationExitInfo.REASON_PACKAGE_UPDATED, OTHER_END),
        End(ApplicationExitInfo.REASON_OTHER, OTHER_END),
        End(ApplicationExitInfo.REASON_OTHER, OTHER_END, subreason = 2),  // too many cached processes
        End(ApplicationExitInfo.REASON_OTHER, OTHER_END, "system update finished", subreason = 8),
        End(ApplicationExitInfo.REASON_UNKNOWN, OTHER_END),
        End(999, OTHER_END),
    )

    @After
    fun leave() = ShadowSystemProperties.reset()

    @Test
    fun `each end means what it is for a plan`() {
        ends.forEachIndexed { number, end ->
            ShadowSystemProperties.override("persist.sys.lmk.reportkills", "${end.reportsLowMemory}")
            val at = 1000L + number
            app.ended(end.reason, at, end.description, end.status, end.subreason)
            val seen = Exits.since(app, trainingProcess(app), at - 1)!!.single()
            assertEquals("reason ${end.reason}, status ${end.status}, '${end.description}', ${end.subreason}", end.means, seen.means)
        }
    }

    @Test
    fun `no reason of the system is left out of the table`() {
        val reasons = ApplicationExitInfo::class.java.fields.filter { Modifier.isStatic(it.modifiers) && it.name.startsWith("REASON_") }
        assertTrue(reasons.size >= 17)
        assertEquals(emptyList<String>(), reasons.filter { reason -> ends.none { it.reason == reason.getInt(null) } }.map { it.name })
    }

    @Test
    fun `ends of other processes and those seen before do not count`() {
        app.ended(ApplicationExitInfo.REASON_LOW_MEMORY, at = 1000, process = app.packageName)  // the app's own process
        app.ended(ApplicationExitInfo.REASON_LOW_MEMORY, at = 2000)
        app.ended(ApplicationExitInfo.REASON_CRASH_NATIVE, at = 3000)
        val process = trainingProcess(app)
        assertEquals(listOf(MEMORY_KILL, CRASH), Exits.since(app, process, 0)!!.map { it.means })
        assertEquals(listOf(3000L), Exits.since(app, process, 2000)!!.map { it.at })
    }
}
