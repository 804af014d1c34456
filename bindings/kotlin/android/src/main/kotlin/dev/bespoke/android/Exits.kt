// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.android

import android.app.ActivityManager
import android.app.ApplicationExitInfo
import android.content.Context
import android.os.Build
import androidx.annotation.RequiresApi

/** What an end of the training process says of the plan that it ran. */
internal enum class ExitMeans {
    /** The system took the process for its memory: the next slice takes smaller plans. */
    MEMORY_KILL,

    /** Somebody ended it, or the system did for another reason: the next slice takes the same plans. */
    OTHER_END,

    /** It crashed: the same plans, and it is told. */
    CRASH,
}

/** Why processes of this app that trained have ended, each said once. */
internal object Exits {
    data class Exit(val means: ExitMeans, val at: Long)

    /** Ends of the process `process` after `seen` (ms since the epoch), oldest first; null before Android 11, which does not tell. */
    fun since(context: Context, process: String, seen: Long): List<Exit>? {
        if (Build.VERSION.SDK_INT < Build.VERSION_CODES.R) return null
        val manager = context.getSystemService(ActivityManager::class.java)
        return manager.getHistoricalProcessExitReasons(context.packageName, 0, MOST)
            .filter { it.processName == process && it.timestamp > seen }
            .sortedBy { it.timestamp }
            .map { Exit(meaning(it.reason, it.status, it.description, ActivityManager.isLowMemoryKillReportSupported()), it.timestamp) }
    }

    /** What a reason of [ApplicationExitInfo] means, with its status and its description, of which the system may say none. */
    @RequiresApi(Build.VERSION_CODES.R)
    fun meaning(reason: Int, status: Int, description: String?, reportsLowMemory: Boolean): ExitMeans = when (reason) {
        ApplicationExitInfo.REASON_LOW_MEMORY, REASON_MEMORY_LIMITER -> ExitMeans.MEMORY_KILL
        // Which resource it was says the description alone. Where it does not name the processor, memory is likely: smaller plans cost
        // little and two clean slices take them back, but the same plans might be killed each time.
        ApplicationExitInfo.REASON_EXCESSIVE_RESOURCE_USAGE, REASON_ANOMALY ->
            if (OF_PROCESSOR.containsMatchIn(description.orEmpty())) ExitMeans.OTHER_END else ExitMeans.MEMORY_KILL
        ApplicationExitInfo.REASON_SIGNALED -> when {
            status == SIGKILL -> if (reportsLowMemory) ExitMeans.OTHER_END else ExitMeans.MEMORY_KILL  // the sign of it where none is reported
            status in FAULTS -> ExitMeans.CRASH
            else -> ExitMeans.OTHER_END
        }
        ApplicationExitInfo.REASON_CRASH, ApplicationExitInfo.REASON_CRASH_NATIVE, ApplicationExitInfo.REASON_ANR,
        ApplicationExitInfo.REASON_INITIALIZATION_FAILURE,
        -> ExitMeans.CRASH
        ApplicationExitInfo.REASON_EXIT_SELF, ApplicationExitInfo.REASON_PERMISSION_CHANGE, ApplicationExitInfo.REASON_USER_REQUESTED,
        ApplicationExitInfo.REASON_USER_STOPPED, ApplicationExitInfo.REASON_DEPENDENCY_DIED, ApplicationExitInfo.REASON_FREEZER,
        ApplicationExitInfo.REASON_PACKAGE_STATE_CHANGE, ApplicationExitInfo.REASON_PACKAGE_UPDATED,
        -> ExitMeans.OTHER_END
        // REASON_OTHER, REASON_UNKNOWN, and what later systems add: the description alone says more.
        else -> if (FOR_MEMORY.any { it in description.orEmpty() }) ExitMeans.MEMORY_KILL else ExitMeans.OTHER_END
    }

    private const val MOST = 16
    private const val SIGKILL = 9
    private val FAULTS = setOf(4, 5, 6, 7, 8, 11, 31)  // SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS: where no crash was reported

    // Of ApplicationExitInfo from API 37.2 on; the SDK that this compiles against does not have them yet.
    private const val REASON_MEMORY_LIMITER = 17
    private const val REASON_ANOMALY = 18

    // Android 17's memory limiter before 37.2 ("MemoryLimiter:AnonSwap"), and the system's own words in brackets for a process that it
    // took under memory pressure.
    private val FOR_MEMORY = listOf("MemoryLimiter", "[MEMORY PRESSURE]", "[LARGE CACHED]")
    private val OF_PROCESSOR = Regex("\\bcpu\\b", RegexOption.IGNORE_CASE)
}
