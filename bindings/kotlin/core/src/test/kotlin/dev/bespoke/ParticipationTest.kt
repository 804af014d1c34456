// SPDX-License-Identifier: Apache-2.0
package dev.bespoke

import kotlinx.coroutines.runBlocking
import kotlinx.serialization.json.jsonObject
import kotlinx.serialization.json.jsonPrimitive
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

/** Consent, and what a device says before any server has answered. Rounds with a server are tested where the client is. */
class ParticipationTest {
    private val together = BundleSource.At(Fixture.together.path)

    @Test
    fun `a bundle without a federation says so`() = withModel(notes = false) { model, _ ->
        val status = model.federation.status()
        assertNull(status.task)
        assertFalse(status.joined)
        assertEquals("federation", refused { model.federation.join() }.subject)
    }

    @Test
    fun `nothing is said to a server before the user has joined`() = withModel(notes = false, together) { model, _ ->
        val status = model.federation.status()
        assertEquals("words", status.task)
        assertTrue("cannot be recalled" in status.explanation, status.explanation)
        assertTrue("join()" in refused { model.federation.request() }.nextStep)
        assertTrue("join()" in refused { model.federation.takePart() }.nextStep)
        model.federation.leave()
        assertEquals(status, model.federation.status())
    }

    @Test
    fun `who joined asks, and who left does not`() = withModel(notes = false, together) { model, _ ->
        model.federation.join()
        assertTrue(model.federation.status().joined)
        val request = model.federation.request()
        assertEquals(Step.ASK, request.step)
        assertEquals("0", json.parseToJsonElement(request.body).jsonObject.getValue("round").jsonPrimitive.content)
        model.federation.leave()
        assertFalse(model.federation.status().joined)
        refused { model.federation.request() }
        Unit
    }

    @Test
    fun `an answer that the bundle's server has not signed changes nothing`() = withModel(notes = false, together) { model, _ ->
        model.federation.join()
        val request = model.federation.request()
        for (answer in listOf(ByteArray(0), "{}".bytes(), ByteArray(1000) { it.toByte() })) {
            assertThrows(BespokeError::class.java) { runBlocking { model.federation.respond(request, answer) } }
        }
        assertEquals(request, model.federation.request())
    }

    @Test
    fun `there is nothing to adopt before the first round`() = withModel(notes = false, together) { model, _ ->
        model.federation.join()
        assertThrows(StateError::class.java) { runBlocking { model.federation.adopt() } }
        Unit
    }

    @Test
    fun `forgetting says that an example had entered no round`() = withModel(notes = false, together) { model, _ ->
        model.examples.add(Example.Tokens(listOf(3, 4, 5), listOf(0, 1, 1)), "one", mustKnow = true)
        val forgotten = model.examples.forget("one")
        assertTrue(forgotten.example)
        assertEquals(0L to emptyList<Long>(), forgotten.numbersDropped to forgotten.rounds)
    }

    private fun refused(call: suspend () -> Unit): ConfigError = assertThrows(ConfigError::class.java) { runBlocking { call() } }
}
