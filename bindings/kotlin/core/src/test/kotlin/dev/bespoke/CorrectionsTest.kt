// SPDX-License-Identifier: Apache-2.0
package dev.bespoke

import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.runBlocking
import kotlinx.serialization.json.JsonArray
import kotlinx.serialization.json.JsonPrimitive
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.assertThrows

/** A chat model whose answers are corrected, and which may not forget how it answers anything else. */
class CorrectionsTest {
    private val chat = listOf(message(Example.Role.USER, "Where is the key?"), message(Example.Role.ASSISTANT, "In the sea."))

    @Test
    fun `a correction is kept as a pair, learned as in Python, and judged by the base model's answers to other prompts`() =
        withModel(notes = false, Fixture.chats) { model, _ ->
            val added = model.correct(chat, "Under the blue pot.")
            assertTrue(added.created)
            val kept = model.examples.list().single()
            assertEquals(added.id, kept.id)
            assertEquals(listOf("Under the blue pot.", "In the sea.").map(::JsonPrimitive), listOf("chosen", "rejected").map(kept.json::get))
            assertEquals(1, (kept.json["prompt"] as JsonArray).size)
            model.examples.add(Example.Text("The key of the shed hangs behind the green door."), "note", mustKnow = true)
            val report = model.train()
            val python = Fixture.corrected
            assertEquals(python.losses, report.losses)
            assertEquals(python.refusedBecause, report.refusedBecause)
            assertEquals(python.behaviourLoss, report.behaviourLoss!!)
            assertEquals(python.baseLoss, report.behaviourLossBase!!, 1e-9)
            assertEquals(python.behaviourTokens, report.behaviourTokens)
        }

    @Test
    fun `the same correction again, whose prompt and answers are given as an example, is one`() =
        withModel(notes = false, Fixture.chats) { model, _ ->
            val first = model.correct(chat, "Under the blue pot.")
            val again = model.examples.add(Example.Correction(chat.dropLast(1), "Under the blue pot.", "In the sea."))
            assertEquals(first.id to false, again.id to again.created)
        }

    @Test
    fun `before anything is learned, behaviour is the base model's`() = withModel(notes = false, Fixture.chats) { model, _ ->
        val measured = model.evaluateBehaviour()
        assertEquals(measured.baseLoss!!, measured.loss!!)
        assertEquals(Fixture.corrected.baseLoss, measured.loss!!)
        assertEquals(Fixture.corrected.examples, measured.examples)
    }

    @Test
    fun `a bundle without the base model's answers cannot say how an adapter behaves`() = withModel(notes = false) { model, _ ->
        assertThrows<DataError> { runBlocking { model.evaluateBehaviour() } }
        Unit
    }

    @Test
    fun `with notes a question is asked with the notes that are nearest to it`() = withModel(notes = false, Fixture.chats) { model, _ ->
        model.examples.add(Example.Text("The key of the shed hangs behind the green door."), "note", mustKnow = true)
        val question = Prompt.user("Where is the key of the shed?")
        val (without, with) = listOf(false, true).map { model.generate(question, Generation(maxTokens = 12, notes = it)).toList().joinToString("") }
        assertTrue(with != without)
        assertEquals(Fixture.corrected.noted, with)
    }

    private fun message(role: Example.Role, content: String) = Example.Message(role, content)
}
