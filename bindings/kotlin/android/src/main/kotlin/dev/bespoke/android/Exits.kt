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
            .map { Exit(meaning(it.reason, it.status, ActivityManager.isLowMemoryKillReportSupported()), it.timestamp) }
    }

    /** Where the system does not report low memory, a plain SIGKILL is the sign of it. */
    @RequiresApi(Build.VERSION_CODES.R)
    fun meaning(reason: Int, status: Int, reportsLowMemory: Boolean): ExitMeans = when (reason) {
        ApplicationExitInfo.REASON_LOW_MEMORY, ApplicationExitInfo.REASON_EXCESSIVE_RESOURCE_USAGE -> ExitMeans.MEMORY_KILL
        ApplicationExitInfo.REASON_SIGNALED -> if (!reportsLowMemory && status == SIGKILL) ExitMeans.MEMORY_KILL else ExitMeans.OTHER_END
        ApplicationExitInfo.REASON_CRASH, ApplicationExitInfo.REASON_CRASH_NATIVE, ApplicationExitInfo.REASON_ANR,
        ApplicationExitInfo.REASON_INITIALIZATION_FAILURE,
        -> ExitMeans.CRASH
        else -> ExitMeans.OTHER_END
    }

    private const val MOST = 16
    private const val SIGKILL = 9
}
