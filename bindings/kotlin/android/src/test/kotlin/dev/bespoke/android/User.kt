// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.android

import android.os.Looper
import dev.bespoke.Example
import dev.bespoke.PersonalModel
import dev.bespoke.Run
import java.io.File
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.runBlocking
import kotlinx.serialization.json.Json
import org.robolectric.Shadows.shadowOf

const val STEPS = 50L  // of a run of the bundle that tests/kotlin/prepare.py makes
const val SLOW = 0.9f  // a thermal headroom at which a quarter of the time is computed

/** Somebody whose app learns: what a test asks of their model, and waits for. */
class User(private val app: TestApp) {
    val learning = Learning(AppBundle(path = File(FIXTURE, "chat.bundle").path, publicKey = SIGNER), whenIdle = false)
    internal val kept get() = Place(app, learning.name).journal.read()

    fun <T> opened(block: suspend (PersonalModel) -> T): T = runBlocking { Personalization.open(app, learning).use { block(it) } }

    fun addNotes() {
        val notes: List<String> = Json.decodeFromString(File(FIXTURE, "notes.json").readText())
        opened { model -> notes.forEachIndexed { number, note -> model.examples.add(Example.Text(note), "note-$number", mustKnow = true) } }
    }

    fun run(): Run? = opened { it.currentRun() }

    /** Until the answer is called, the state is no database. */
    fun damageState(): () -> Unit {
        val database = File(Place(app, learning.name).state, "state.sqlite")
        val whole = database.readBytes()
        database.writeText("no database")
        return { database.writeBytes(whole) }
    }

    fun status() = runBlocking { Personalization.status(app, learning).first() }

    fun running(): LearningStatus.Running {
        app.await("a step") { (status() as? LearningStatus.Running)?.let { it.step >= 1 && it.loss != null } == true }
        return status() as LearningStatus.Running
    }

    /** Until the training process has committed. */
    fun idle() = app.await("no slice") { PersonalizationWorker.slices.value == 0 }

    /** WorkManager leaves before Robolectric takes the application away under its threads. */
    fun leave() {
        Personalization.cancel(app)
        idle()
        shadowOf(Looper.getMainLooper()).idle()
        Thread.sleep(100)
    }

    private companion object {
        val FIXTURE = File(checkNotNull(System.getProperty("bespoke.fixture")) { "run make test-kotlin" })
        val SIGNER = File(FIXTURE, "signer.txt").readText()
    }
}
