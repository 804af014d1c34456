// SPDX-License-Identifier: Apache-2.0
package dev.bespoke

import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.assertThrows

/** Verbs of the store that take several examples, and calls that wait or are ended. */
class StoreTest {
    @Test
    fun `several examples are added together or not at all`() = withModel(notes = false) { model, _ ->
        val good = Fixture.notes.take(3).map { Example.Text(it) }
        assertThrows<DataError> { runBlocking { model.examples.addAll(good + Example.Text("")) } }
        assertEquals(0, model.examples.count())
        val added = model.examples.addAll(good, mustKnow = true)
        assertTrue(added.all { it.created && it.split == Split.TRAIN })
        assertEquals(added.map { it.id }, model.examples.list().map { it.id })
    }

    @Test
    fun `examples are listed page by page`() = withModel { model, _ ->
        val all = model.examples.list().map { it.id }
        val pages = generateSequence(runBlocking { model.examples.list(most = 2) }) { page ->
            page.lastOrNull()?.let { last -> runBlocking { model.examples.list(after = last.id, most = 2) } }
        }
        assertEquals(all, pages.takeWhile { it.isNotEmpty() }.flatten().map { it.id }.toList())
        assertThrows<DataError> { runBlocking { model.examples.list(after = "nobody") } }
        Unit
    }

    @Test
    fun `a bundle says what it is and how long a prompt is`() = withModel(notes = false) { model, _ ->
        val description = model.describe()
        assertEquals(listOf("mesp", "mezo"), description.methods)
        assertTrue(description.takesText && description.answers && description.contextLength > 0)
        val short = model.countTokens(Prompt.Text("Once upon a time"))
        assertTrue(short in 2..16 && short < model.countTokens(Prompt.Text("Once upon a time there was a dog")))
        model.generate(Prompt.Text("Once upon"), Generation(maxTokens = 3)).toList()
        model.trim()
        assertEquals(3, model.generate(Prompt.Text("Once upon"), Generation(maxTokens = 3)).toList().size)
    }

    @Test
    fun `a call waits for its turn where the options say so`() {
        val state = kotlin.io.path.createTempDirectory("bespoke").resolve("alice")
        runBlocking {
            PersonalModel.open(Fixture.bundle, state.toString(), Options(waitSeconds = null)).use { model ->
                model.examples.add(Example.Text(Fixture.notes[0]), mustKnow = true)
                coroutineScope {
                    val training = launch(Dispatchers.Default) { model.train(Training(runSteps = 5)) }
                    model.progress.first { it.phase == Phase.STEP }
                    assertTrue(model.evaluate(split = Split.TRAIN).loss!! > 0)  // Busy at once where nothing says to wait
                    training.join()
                }
            }
        }
        state.parent.toFile().deleteRecursively()
    }

    @Test
    fun `a verb whose coroutine is cancelled changes nothing or has happened`() = withModel(notes = false) { model, _ ->
        val many = List(40) { Example.Text("${Fixture.notes[0]} $it") }
        for (wait in 0L..6L) {
            val before = model.examples.count()
            coroutineScope {
                val adding = launch(Dispatchers.Default) { model.examples.addAll(many.map { Example.Text("${it.text} $wait") }) }
                delay(wait)
                adding.cancelAndJoin()
            }
            assertTrue(model.examples.count() - before in listOf(0L, 40L))
        }
    }
}
