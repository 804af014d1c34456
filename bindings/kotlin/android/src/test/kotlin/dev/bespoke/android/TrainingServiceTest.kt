// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.android

import android.content.Intent
import android.os.Messenger
import org.junit.After
import org.junit.Assert.assertEquals
import org.junit.Assert.assertNotSame
import org.junit.Assert.assertNull
import org.junit.Before
import org.junit.Test
import org.junit.runner.RunWith
import org.robolectric.Robolectric
import org.robolectric.RobolectricTestRunner
import org.robolectric.RuntimeEnvironment

/** Every order is answered, and only the client that gave one can stop it: a worker waits for the end of its slice. */
@RunWith(RobolectricTestRunner::class)
class TrainingServiceTest {
    private val app get() = RuntimeEnvironment.getApplication() as TestApp
    private val user by lazy { User(app) }
    private val controller by lazy { Robolectric.buildService(TrainingService::class.java).create() }
    private val service by lazy { Messenger(controller.get().onBind(Intent())) }
    private val clients = mutableListOf<Client>()

    private inner class Client {
        var progress: SliceProgress? = null
        var end: SliceEnd? = null
        val answers = answers({ progress = it }) { end = it }.also { clients += this }

        fun start(isForeground: Boolean = false) {
            val order = SliceOrder(user.learning.bundle, user.learning.name, 60.0, null, PlanLadder(), isForeground)
            service.say(Words.START, SliceOrder.serializer(), order, answers)
        }

        fun stop() = service.say(Words.STOP, Stop.serializer(), Stop, answers)
    }

    @Before
    fun notes() {
        HotPowerManager.headroom = SLOW
        user.addNotes()
    }

    @After
    fun leave() {
        clients.forEach { it.stop() }
        app.await("the ends") { clients.all { it.end != null } }
    }

    @Test
    fun `an order that is stopped at once is answered`() {
        for (time in 1..20) {  // some before the first line of the slice runs
            val client = Client()
            client.start()
            client.stop()
            app.await("the end of order $time") { client.end != null }
            assertEquals(Pause.BUSY, client.end!!.pause)
        }
    }

    @Test
    fun `an order after one that was stopped waits for its last commit and trains`() {
        val first = Client()
        first.start()
        app.await("a step") { first.progress?.loss != null }
        first.stop()
        val second = Client()
        second.start()
        app.await("a step of the second one") { second.progress?.loss != null }
        assertEquals(Pause.BUSY, first.end!!.pause)
        assertNull(second.end)
    }

    @Test
    fun `the stop of a slice that has ended does not end the next one`() {
        val background = Client()
        background.start()
        app.await("a step") { background.progress?.loss != null }
        val now = Client()
        now.start(isForeground = true)
        app.await("the end of the first one") { background.end != null }
        background.stop()  // it was said before the end was heard
        val seen = now.progress
        app.await("a step of the second one") { now.progress?.loss != null && now.progress !== seen }
        assertNotSame(seen, now.progress)
        assertNull(now.end)
    }

    @Test
    fun `an order to a service that was destroyed is answered`() {
        service  // bound
        controller.destroy()
        val client = Client()
        client.start()
        app.await("the end") { client.end != null }
    }
}
