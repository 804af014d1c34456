// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.notes

import dev.bespoke.Prompt
import dev.bespoke.android.AppBundle
import dev.bespoke.android.TestApp
import java.io.File
import kotlinx.serialization.json.Json

/** The app's parts in the library's test app, on a bundle that tests/kotlin/prepare.py makes. */
class NotesTestApp : TestApp(), HasParts {
    /** Its model has no chat turns. */
    var bundle = AppBundle(path = File(FIXTURE, "chat.bundle").path, publicKey = File(FIXTURE, "signer.txt").readText())

    var prompt: (String) -> Prompt = Prompt::Text

    override val parts by lazy {
        Parts(this, learning(bundle).copy(whenIdle = false), prompt)
    }

    /** From here on the model has chat turns, and its method learns from corrections. */
    fun withTurns() {
        bundle = AppBundle(path = File(FIXTURE, "older.bundle").path, requireAuthenticated = false)
        prompt = Prompt::user
    }

    companion object {
        private val FIXTURE = File(checkNotNull(System.getProperty("bespoke.fixture")) { "run make test-kotlin" })
        val NOTES: List<String> by lazy { Json.decodeFromString(File(FIXTURE, "notes.json").readText()) }
    }
}
