// SPDX-License-Identifier: Apache-2.0
package dev.bespoke

import java.io.File
import java.lang.management.ManagementFactory
import java.nio.file.Files
import kotlin.random.Random
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.flow.take
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNotNull
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.assertThrows

/** Their names have no punctuation, which R8 does not take (tests/kotlin/test_shrunk.py). */
class PersonalModelTest {
    @Test
    fun `slices have the losses of a run in Python and what was learned answers in two turns`() = withModel { model, _ ->
        val calls = listOf(Training(mostSteps = 17), Training(stop = { it.phase == Phase.STEP && it.step >= 33 }), Training(mostSteps = 10), Training())
        val slices = calls.map { model.train(it) }
        assertEquals(listOf(17L, 16L, 10L, 7L), slices.map { it.steps })
        val ends = listOf(TrainReportStoppedBecause.STEPS_DONE, TrainReportStoppedBecause.STOP_REQUESTED, TrainReportStoppedBecause.STEPS_DONE)
        assertEquals(ends, slices.dropLast(1).map { it.stoppedBecause })
        assertEquals(listOf(slices.first().run), slices.map { it.run }.distinct())
        assertTrue(slices.dropLast(1).all { it.accepted == null } && slices.last().accepted != null)
        assertEquals(Fixture.python.losses, slices.flatMap { it.losses })
        assertEquals(Fixture.python.accepted, model.versions().isNotEmpty())
        model.conversation(Generation(maxTokens = 20)).use { conversation ->
            val turns = listOf("Once upon", " Then Tom").map { conversation.say(Prompt.Text(it)).toList().joinToString("") }
            assertEquals(Fixture.python.turns, turns)
        }
    }

    @Test
    fun `words in any script come back as they went in`() = withModel(notes = false) { model, _ ->
        val words = "👩🏽‍🚀 \u0000 naïve 日本語 \"quoted\" \\ \n ﷽ 🇩🇪"
        val added = model.examples.add(Example.PromptCompletion("Wer ist das? 🚀", words), "🦊", mustKnow = true)
        assertTrue(added.created)
        assertEquals(Split.TRAIN, added.split)
        assertEquals(emptyMap<String, Long>(), added.unusedKeys)
        val kept = model.examples.list().single()
        assertEquals("🦊", kept.id)
        assertEquals(words, kept.json["completion"].toString().let { json.decodeFromString<String>(it) })
        assertEquals(1, model.examples.count())
        assertTrue(model.examples.forget("🦊").example)
        assertEquals(0, model.examples.count())
    }

    @Test
    fun `an error has its four parts and its class`() = withModel(notes = false) { model, _ ->
        val error = assertThrows<DataError> { runBlocking { model.examples.add(Example.Text("")) } }
        listOf(error.subject, error.got, error.expected, error.nextStep).forEach { assertTrue(it.isNotBlank()) }
        assertThrows<BundleError> { runBlocking { PersonalModel.open(BundleSource.At("/nowhere/🐚"), "/tmp/x") } }
        assertThrows<AdapterError> { runBlocking { model.exportAdapter("/tmp/never") } }
        val steps = Training(settings = JsonObject(mapOf("steps" to JsonPrimitive(5))))
        val unclear = assertThrows<ConfigError> { runBlocking { model.checkTraining(steps) } }
        assertTrue("runSteps" in unclear.expected && "mostSteps" in unclear.expected)
    }

    @Test
    fun `a limit counts what is added to what the process held`() = runBlocking {
        val state = Files.createTempDirectory("bespoke")
        val ample = Options(memoryMb = 60.0)
        PersonalModel.open(Fixture.bundle, state.resolve("ample").toString(), ample).use { model ->
            model.examples.add(Example.Text(Fixture.notes[0]), mustKnow = true)
            val memory = model.train(Training(runSteps = 3)).memory
            assertTrue(memory.idleBytes > 20_000_000)  // a JVM's, which no test takes away
            assertEquals(memory.idleBytes + 60_000_000, memory.limitBytes)
            assertTrue(memory.peakBytes > memory.idleBytes && memory.peakBytes <= memory.limitBytes!!)
            model.setLimit(0.5)
            assertThrows<BudgetExceeded> { runBlocking { model.train(Training(runSteps = 3)) } }
        }
        state.toFile().deleteRecursively()
        Unit
    }

    @Test
    fun `progress is told while it trains`() = withModel { model, _ ->
        coroutineScope {
            val seen = async(Dispatchers.Default) { model.progress.first { it.phase == Phase.STEP } }
            model.train(Training(runSteps = 5))
            val step = seen.await()
            assertTrue(step.step in 1..5 && step.footprintBytes > 0)
            assertNotNull(step.loss)
        }
    }

    @Test
    fun `a cancelled training goes on later where it stood`() = withModel { model, _ ->
        val chance = Random(7)
        repeat(CANCELLATIONS) {
            coroutineScope {
                val training = launch { model.train() }
                delay(chance.nextLong(0, 60))
                training.cancelAndJoin()
            }
        }
        while (model.currentRun() != null) model.train(Training(mostSteps = 10))
        assertTrue(model.versions().isNotEmpty())
    }

    @Test
    fun `an answer may be left in the middle and the next one begins anew`() = withModel(notes = false) { model, _ ->
        val first = model.generate(Prompt.Text("Once upon"), Generation(maxTokens = 30)).toList()
        val left = model.generate(Prompt.Text("Once upon"), Generation(maxTokens = 30)).take(3).toList()
        assertEquals(first.take(3), left)
        assertEquals(first, model.generate(Prompt.Text("Once upon"), Generation(maxTokens = 30)).toList())
    }

    @Test
    fun `closing from another thread ends what runs once and later calls throw`() = withModel { model, _ ->
        val conversation = model.conversation()
        model.setPace(SLOW)
        coroutineScope {
            val training = async(Dispatchers.Default) { runCatching { model.train() } }
            model.progress.first { it.phase == Phase.STEP }
            val closings = List(3) { launch(Dispatchers.IO) { model.close() } }
            closings.forEach { it.join() }
            val ended = training.await()
            assertTrue(ended.isSuccess || ended.exceptionOrNull() is StateError)
        }
        assertThrows<StateError> { runBlocking { model.examples.count() } }
        assertThrows<StateError> { runBlocking { conversation.next() } }
        Unit
    }

    @Test
    fun `a second call that computes is told that the model is busy`() = withModel { model, _ ->
        model.setPace(SLOW)
        coroutineScope {
            val training = launch(Dispatchers.Default) { model.train() }
            model.progress.first { it.phase == Phase.STEP }
            assertThrows<Busy> { runBlocking { model.evaluate() } }
            assertEquals(Fixture.notes.size.toLong(), model.examples.count())  // the store answers at once
            training.cancelAndJoin()
        }
    }

    @Test
    fun `what was learned is exported and imported and rolled back and forgotten`() = withModel { model, state ->
        assertTrue(model.train().accepted == true)
        val folder = state.resolveSibling("adapter").toString()
        model.exportAdapter(folder)
        assertEquals(setOf("adapter_config.json", "adapter_model.safetensors"), File(folder).list()!!.toSet())
        val version = model.importAdapter(folder, trustBase = true)
        assertEquals(version, model.versions().last().id)
        assertNotNull(model.rollback())
        model.reset()
        assertNull(model.currentRun())
        assertTrue(model.versions().isEmpty())
    }

    @Test
    fun `scores and labels come as Python has them`() = withModel(notes = false) { model, _ ->
        val scores = model.score(Prompt.Text("Once upon a"), listOf(" time", " tim"))
        assertEquals(2, scores.size)
        assertTrue(scores[0].logProbability!! > scores[1].logProbability!!)
        assertEquals(" time", model.classify(Prompt.Text("Once upon a"), listOf(" time", " tim")).label)
    }

    @Test
    fun `a thousand models opened and closed leave no descriptors behind`() {
        val before = File("/proc/self/fd").list()!!.size
        withModel(notes = false) { model, state ->
            model.close()
            repeat(OPENINGS) { PersonalModel.open(Fixture.bundle, state.toString()).close() }
        }
        assertTrue(File("/proc/self/fd").list()!!.size <= before + 2)
    }

    @Test
    fun `answers leave the heap as it was`() = withModel(notes = false) { model, _ ->
        suspend fun generated(tokens: Int) {
            var left = tokens
            while (left > 0) {
                model.conversation(Generation(maxTokens = 50)).use { it.say(Prompt.Text("Once upon")).collect {} }
                left -= 50
            }
        }
        generated(500)  // classes are loaded and caches filled
        val grown = (1..3).minOf {  // what a class or a pool takes once comes once, and what answers leave behind each time
            val before = usedHeap()
            generated(TOKENS)
            usedHeap() - before
        }
        assertTrue(grown < 100_000) { "$grown bytes more" }
    }

    @Test
    fun `training takes what it takes in a program in C without the memory of the JVM`() {
        var added = 0L
        repeat(3) {  // the last one: by then the JVM has loaded its classes and compiled what runs often
            withModel { model, _ ->
                val ofJvm = nativeMemoryOfTheJvm()
                val memory = model.train().memory
                added = memory.peakBytes - memory.idleBytes
                println("added $added bytes, in C ${Fixture.addedBytesInC}; the JVM itself ${nativeMemoryOfTheJvm() - ofJvm}")
            }
        }
        assertTrue(added <= Fixture.addedBytesInC + 1_000_000) { "$added against ${Fixture.addedBytesInC}" }
    }

    @Test
    fun `it says what training takes by each of its plans and runs by the one that has room`() = withModel { model, _ ->
        val planned = model.plannedTraining()
        assertEquals(List(3) { "mesp" } + List(3) { "mezo" }, planned.map { it.method })
        assertEquals(List(3) { false } + List(3) { true }, planned.map { it.replayable })
        assertTrue(planned.all { it.peakBytes <= it.memoryBytes!! })
        assertEquals(planned[0].memoryBytes, model.train(Training(stop = { it.step == 2L })).memory.plannedForBytes)
        model.setLimit(planned[2].memoryBytes!! / 1e6)
        val report = model.train()
        assertEquals(planned[2].memoryBytes, report.memory.plannedForBytes)
        assertEquals(1, report.run)
        assertEquals(report.accepted, report.refusedBecause == null)
        Fixture.python.losses.takeLast(40).zip(report.losses.takeLast(40)).forEach { (one, other) -> assertEquals(one, other!!, 1e-5 * one) }
    }

    /** Outside of its heap, which is resident from the start: classes, compiled code. */
    private fun nativeMemoryOfTheJvm(): Long = ManagementFactory.getMemoryMXBean().nonHeapMemoryUsage.committed

    private fun usedHeap(): Long {
        repeat(3) { System.gc() }
        return ManagementFactory.getMemoryMXBean().heapMemoryUsage.used
    }

    private companion object {
        const val SLOW = 0.02  // a share of the time, so that a training is still there when it is looked at
        val FULL = System.getenv("BESPOKE_FULL") == "1"
        val CANCELLATIONS = if (FULL) 200 else 20
        val OPENINGS = if (FULL) 1000 else 20
        val TOKENS = if (FULL) 10_000 else 1_000
    }

    @Test
    fun `a model that is opened for nobody any more is closed`() = runBlocking {
        val state = Files.createTempDirectory("bespoke").resolve("alice")
        var cancelled = 0
        for (wait in 0L..20L) {
            val opening = async(Dispatchers.Default) { PersonalModel.open(Fixture.bundle, state.toString()) }
            delay(wait)
            opening.cancel()
            try {
                opening.await().close()
            } catch (_: CancellationException) {
                cancelled++
            }
            opening.join()
            assertEquals(emptyList<String>(), openFiles().filter { it.startsWith("$state/") }, "cancelled after $wait ms")
        }
        assertTrue(cancelled > 0)
        state.parent.toFile().deleteRecursively()
        Unit
    }

    private fun openFiles(): List<String> = File("/proc/self/fd").listFiles().orEmpty()
        .mapNotNull { runCatching { Files.readSymbolicLink(it.toPath()).toString() }.getOrNull() }
}
