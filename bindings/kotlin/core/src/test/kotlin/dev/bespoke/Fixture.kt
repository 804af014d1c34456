// SPDX-License-Identifier: Apache-2.0
package dev.bespoke

import java.io.File
import java.nio.file.Files
import java.nio.file.Path
import kotlinx.coroutines.runBlocking
import kotlinx.serialization.SerialName
import kotlinx.serialization.Serializable
import kotlinx.serialization.json.Json

/** What tests/support/phone_fixture.py and tests/kotlin/prepare.py have made: a bundle of stories260K, notes, and what Python does with them. */
object Fixture {
    private val folder = File(checkNotNull(System.getProperty("bespoke.fixture")) { "run make test-kotlin" })
    val bundle = BundleSource.At(File(folder, "chat.bundle").path)

    /** With a federation, of tokens. */
    val together = File(folder, "together.bundle")
    val manifest = File(folder, "chat.bundle/manifest.json")
    val signer = File(folder, "signer.txt").readText()
    val notes: List<String> = Json.decodeFromString(File(folder, "notes.json").readText())
    val python: Python = Json.decodeFromString(File(folder, "python.json").readText())

    /** What a program in C adds to its process when it trains. */
    val addedBytesInC: Long = File(folder, "added.json").readText().toLong()

    /** With chat turns, answers of the base model to other prompts, and a method that learns from corrections. */
    val chats = BundleSource.At(File(folder, "older.bundle").path)
    val corrected: Corrected by lazy { Json.decodeFromString(File(folder, "older.json").readText()) }

    @Serializable
    class Corrected(
        val noted: String,
        val losses: List<Double>,
        @SerialName("refused_because") val refusedBecause: RefusedBecause?,
        @SerialName("behaviour_loss") val behaviourLoss: Double,
        @SerialName("behaviour_tokens") val behaviourTokens: Long,
        @SerialName("base_loss") val baseLoss: Double,
        val examples: Long,
    )

    @Serializable
    class Python(val losses: List<Double>, val accepted: Boolean, val turns: List<String>)
}

/** A model of its own for a test, with the notes in it where asked for. */
fun <T> withModel(
    notes: Boolean = true,
    bundle: BundleSource = Fixture.bundle,
    block: suspend (PersonalModel, Path) -> T,
): T = runBlocking {
    val state = Files.createTempDirectory("bespoke").resolve("alice")
    try {
        PersonalModel.open(bundle, state.toString()).use { model ->
            if (notes) Fixture.notes.forEachIndexed { number, note -> model.examples.add(Example.Text(note), "note-$number", mustKnow = true) }
            block(model, state)
        }
    } finally {
        state.parent.toFile().deleteRecursively()
    }
}
