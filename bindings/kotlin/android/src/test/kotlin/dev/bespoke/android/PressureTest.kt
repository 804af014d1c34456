// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.android

import android.content.ComponentCallbacks2
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Test

class PressureTest {
    private fun decided(signals: Signals, isForeground: Boolean = false) = decide(signals, budgetBytes = 200, smallestBytes = 80, isForeground)

    @Test
    fun `heat slows training, and then ends the slice`() {
        val paces = listOf(null, 0.69f, 0.7f, 0.84f, 0.85f, 0.99f).map { decided(Signals(thermalHeadroom = it)) }
        assertEquals(listOf(1.0, 1.0, 0.5, 0.5, 0.25, 0.25), paces.map { it.pace })
        assertEquals(listOf<Pause?>(null), paces.map { it.pause }.distinct())
        assertEquals(Pause.HOT, decided(Signals(thermalHeadroom = 1.0f)).pause)
        assertEquals(Pause.HOT, decided(Signals(thermalHeadroom = 1.0f), isForeground = true).pause)
    }

    @Test
    fun `power save ends what nobody waits for, and slows the rest`() {
        assertEquals(Pause.POWER_SAVE, decided(Signals(isPowerSave = true)).pause)
        assertEquals(Decision(0.5, 200), decided(Signals(isPowerSave = true), isForeground = true))
        assertEquals(0.25, decided(Signals(isPowerSave = true, thermalHeadroom = 0.9f), isForeground = true).pace)
    }

    @Test
    fun `the least of budget, room and what a trim leaves is the limit`() {
        assertEquals(200, decided(Signals()).limitBytes)
        assertEquals(200, decided(Signals(roomBytes = 300)).limitBytes)
        assertEquals(150, decided(Signals(roomBytes = 150)).limitBytes)
        @Suppress("DEPRECATION")
        for (level in listOf(ComponentCallbacks2.TRIM_MEMORY_RUNNING_MODERATE, ComponentCallbacks2.TRIM_MEMORY_RUNNING_LOW)) {
            assertEquals(Decision(1.0, 80), decided(Signals(roomBytes = 150, trimLevel = level)))
        }
        @Suppress("DEPRECATION")
        assertEquals(Pause.MEMORY, decided(Signals(trimLevel = ComponentCallbacks2.TRIM_MEMORY_RUNNING_CRITICAL)).pause)
        assertEquals(Decision(1.0, 200), decided(Signals(trimLevel = ComponentCallbacks2.TRIM_MEMORY_BACKGROUND)))
        assertNull(decide(Signals(), budgetBytes = null, smallestBytes = 80, isForeground = false).limitBytes)
    }
}
