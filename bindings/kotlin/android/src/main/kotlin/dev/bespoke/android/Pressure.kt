// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.android

import android.app.ActivityManager
import android.content.ComponentCallbacks2
import android.content.Context
import android.os.Build
import android.os.PowerManager
import java.io.File
import kotlinx.coroutines.flow.MutableStateFlow
import kotlinx.coroutines.flow.StateFlow
import kotlinx.coroutines.flow.update

/**
 * What the device says of itself; null: it does not say.
 *
 * @property roomBytes what the slice may hold in all: what it holds, and what the system has left
 */
internal data class Signals(
    val thermalHeadroom: Float? = null,
    val isPowerSave: Boolean = false,
    val roomBytes: Long? = null,
    val trimLevel: Int = 0,
)

/** What a slice does about it: it goes on at this pace within this limit, or ends. */
internal data class Decision(val pace: Double, val limitBytes: Long?, val pause: Pause? = null)

/**
 * The rules. A hot device slows training and then ends the slice; in power save a slice that nobody waits for ends; what the system lacks in
 * memory lowers the limit, so that the next call takes smaller plans.
 */
internal fun decide(signals: Signals, budgetBytes: Long?, smallestBytes: Long, isForeground: Boolean): Decision {
    val heat = signals.thermalHeadroom ?: 0f
    val pause = when {
        heat >= SEVERE -> Pause.HOT
        signals.isPowerSave && !isForeground -> Pause.POWER_SAVE
        signals.trimLevel in STOPPING_TRIMS -> Pause.MEMORY
        else -> null
    }
    val pace = minOf(if (heat >= HOT) 0.25 else if (heat >= WARM) 0.5 else 1.0, if (signals.isPowerSave) 0.5 else 1.0)
    val trimmed = if (signals.trimLevel in SHRINKING_TRIMS) smallestBytes else null
    return Decision(pace, listOfNotNull(budgetBytes, signals.roomBytes, trimmed).minOrNull(), pause)
}

private const val SEVERE = 1.0f  // PowerManager.getThermalHeadroom: where the system begins to throttle severely
private const val HOT = 0.85f
private const val WARM = 0.7f

// The levels of a process in use are no longer sent from API 34 on; there what the system has left counts alone.
@Suppress("DEPRECATION")
private val SHRINKING_TRIMS = setOf(ComponentCallbacks2.TRIM_MEMORY_RUNNING_MODERATE, ComponentCallbacks2.TRIM_MEMORY_RUNNING_LOW)

@Suppress("DEPRECATION")
private val STOPPING_TRIMS = setOf(ComponentCallbacks2.TRIM_MEMORY_RUNNING_CRITICAL, ComponentCallbacks2.TRIM_MEMORY_COMPLETE)

/** Reads [Signals]. */
internal class Sensors(context: Context) {
    private val memory = context.getSystemService(ActivityManager::class.java)
    private val power = context.getSystemService(PowerManager::class.java)
    private val trims = MutableStateFlow(0)
    private var before = 0L
    private var headroom: Float? = null
    private var headroomAt: Long? = null

    /** The highest level of `onTrimMemory` since the slice began. */
    val trimLevel: StateFlow<Int> get() = trims

    fun trim(level: Int) = trims.update { maxOf(it, level) }

    /** A slice begins: what the process holds from now on is the slice's. */
    fun begin() {
        before = footprint()
        trims.value = 0
    }

    /** What a footprint of this process holds for the slice. */
    fun added(footprintBytes: Long) = (footprintBytes - before).coerceAtLeast(0)

    fun read(): Signals {
        val left = listOfNotNull(available(), cgroupRoom()).min()
        return Signals(headroom(), power.isPowerSaveMode, added(footprint()) + left, trims.value)
    }

    /** The system answers once a second at most. */
    private fun headroom(): Float? {
        val now = System.nanoTime()
        if (Build.VERSION.SDK_INT >= Build.VERSION_CODES.R && (headroomAt == null || now - headroomAt!! >= 1_000_000_000)) {
            headroom = power.getThermalHeadroom(FORECAST_SECONDS).takeUnless(Float::isNaN)
            headroomAt = now
        }
        return headroom
    }

    /** Until the system counts as short of memory. */
    private fun available(): Long {
        val info = ActivityManager.MemoryInfo().also(memory::getMemoryInfo)
        return (info.availMem - info.threshold).coerceAtLeast(0)
    }

    /** What this process's group may still take before its pages are reclaimed, where it can be read (Android 17). */
    private fun cgroupRoom(): Long? {
        val group = lines("/proc/self/cgroup").firstOrNull { it.startsWith("0::") }?.removePrefix("0::") ?: return null
        fun number(name: String) = lines("/sys/fs/cgroup$group/$name").firstOrNull()?.trim()?.toLongOrNull()  // "max": no limit
        val high = number("memory.high") ?: return null
        return (high - (number("memory.current") ?: return null)).coerceAtLeast(0)
    }

    /** Anonymous memory of this process, shared and swapped memory included: what the system judges it by. */
    private fun footprint(): Long = lines("/proc/self/status")
        .filter { line -> COUNTED.any(line::startsWith) }
        .sumOf { it.filter(Char::isDigit).toLong() * 1024 }

    private fun lines(file: String): List<String> = runCatching { File(file).readLines() }.getOrDefault(emptyList())

    private companion object {
        const val FORECAST_SECONDS = 10
        val COUNTED = listOf("RssAnon:", "RssShmem:", "VmSwap:")
    }
}
