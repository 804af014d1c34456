// SPDX-License-Identifier: Apache-2.0
package dev.bespoke

import java.nio.file.Files
import java.nio.file.Path
import java.util.concurrent.TimeUnit
import kotlin.random.Random
import kotlinx.coroutines.delay
import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

/** Two JVMs on one state: one trains and is killed, the other one has the state open all the while. */
class KilledProcessTest {
    @Test
    fun `a process that is killed loses nothing that it was told and the run ends as if nothing had happened`() = runBlocking {
        val folder = Files.createTempDirectory("bespoke")
        val state = folder.resolve("alice")
        try {
            val told = mutableListOf<String>()
            PersonalModel.open(Fixture.bundle, state.toString()).use { model ->
                addNotes(model)
                assertEquals(TrainReportStoppedBecause.STOP_REQUESTED, model.train(Training(stop = { true })).stoppedBecause)  // its examples are fixed now
                repeat(KILLS) { number ->
                    val child = Child(state, "child-$number")
                    val id = "parent-$number"
                    model.examples.add(Example.Text("A note of the other process, number $number."), id)
                    told += id
                    told += child.killed()
                    assertEquals(emptyList<String>(), told - model.examples.list().map { it.id }.toSet())
                }
                while (model.currentRun() != null) model.train(Training(mostSteps = 20))
                model.exportAdapter(folder.resolve("killed").toString(), base = true)
            }
            assertTrue(told.count { it.startsWith("child") } >= KILLS)
            assertTrue(uninterrupted(folder) contentEquals adapter(folder.resolve("killed")))
        } finally {
            folder.toFile().deleteRecursively()
        }
        Unit
    }

    private suspend fun uninterrupted(folder: Path): ByteArray {
        PersonalModel.open(Fixture.bundle, folder.resolve("bob").toString()).use { model ->
            addNotes(model)
            model.train()
            assertNull(model.currentRun())
            model.exportAdapter(folder.resolve("whole").toString(), base = true)
        }
        return adapter(folder.resolve("whole"))
    }

    private suspend fun addNotes(model: PersonalModel) =
        Fixture.notes.forEachIndexed { number, note -> model.examples.add(Example.Text(note), "note-$number", mustKnow = true) }

    private fun adapter(folder: Path): ByteArray = Files.readAllBytes(folder.resolve("adapter_model.safetensors"))

    /** A JVM that adds notes and trains until it is killed. */
    private class Child(state: Path, name: String) {
        private val process = ProcessBuilder(
            Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-Xms64m", "-Xmx64m", "-XX:+AlwaysPreTouch", "-XX:+UseSerialGC",
            "-Djava.library.path=${System.getProperty("java.library.path")}", "-Dbespoke.fixture=${System.getProperty("bespoke.fixture")}",
            "-cp", System.getProperty("java.class.path"), Child::class.java.name, state.toString(), name,
        ).redirectError(ProcessBuilder.Redirect.INHERIT).start()

        /** Kills it within its training; what it had said that it added. */
        fun killed(): List<String> {
            val added = mutableListOf<String>()
            process.inputStream.bufferedReader().use { said ->
                for (line in said.lineSequence()) {
                    if (line == TRAINS) break
                    added += line
                }
                assertTrue(added.isNotEmpty() && process.isAlive)
                Thread.sleep(chance.nextLong(0, 80))
                process.destroyForcibly()
                assertTrue(process.waitFor(30, TimeUnit.SECONDS))
            }
            assertEquals(128 + SIGKILL, process.exitValue())
            return added
        }

        companion object {
            private val chance = Random(11)

            @JvmStatic
            fun main(arguments: Array<String>) = runBlocking {
                val (state, name) = arguments
                PersonalModel.open(Fixture.bundle, state).use { model ->
                    model.examples.add(Example.Text("A note of a process that will be killed: $name."), name)
                    println(name)
                    println(TRAINS)
                    while (true) {  // commits after each step; the last ones are for the process that is not killed
                        val done = model.currentRun()!!.step
                        if (done < LAST) model.train(Training(stop = { it.phase == Phase.STEP && it.step > done })) else delay(10)
                    }
                }
            }
        }
    }

    private companion object {
        const val TRAINS = "trains"
        const val SIGKILL = 9
        const val LAST = 40L  // of 50
        val KILLS = if (System.getenv("BESPOKE_FULL") == "1") 50 else 3
    }
}
