// SPDX-License-Identifier: Apache-2.0
package dev.bespoke

import kotlinx.serialization.json.JsonObject

/** Where a bundle is. It is code: what is in it runs with the app's rights. */
sealed interface BundleSource {
    /**
     * A folder, a folder with weights.zip and method.zip in it, or a zip.
     *
     * @property path of it
     */
    data class At(val path: String) : BundleSource

    /**
     * A zip within an open file, for instance an asset that an APK stores uncompressed.
     *
     * @property descriptor of the file; it may be closed after `open`
     * @property offset in bytes, where the zip begins
     * @property size of the zip, in bytes
     */
    data class Within(val descriptor: Int, val offset: Long, val size: Long) : BundleSource
}

/**
 * By what the app knows its bundle.
 *
 * @property pinSha256 of manifest.json, in hexadecimal
 * @property publicKey ed25519, 64 hexadecimal digits, of the one who signs; IllegalArgumentException for anything else
 * @property requireAuthenticated refuse to open without either. By default a bundle without them opens, and [PersonalModel.authenticated]
 *     says "none"
 */
class Trust(val pinSha256: String? = null, val publicKey: String? = null, val requireAuthenticated: Boolean = false) {
    internal val publicKeyBytes: ByteArray? = publicKey?.let { key ->
        require(key.matches(Regex("[0-9a-fA-F]{64}"))) { "a public key is 64 hexadecimal digits: got '$key'" }
        key.chunked(2).map { it.toInt(16).toByte() }.toByteArray()
    }
}

/**
 * How a model is opened.
 *
 * @property trust by what its bundle is known
 * @property memoryMb what a call may add to what the process held when it began, in MB of 10^6 bytes; null: the bundle's budget. So what
 *     the app itself takes meanwhile does not count. Reports say both ([MemoryReport.idleBytes], [MemoryReport.peakBytes] of the whole process)
 * @property threads null: as many as suit the processor
 * @property cache a folder of the app's that an engine may fill and the system may empty
 * @property waitSeconds how long a call that computes waits for its turn, before it is [Busy]; null: however long it takes
 * @property busySeconds how long a call waits for another process that uses the state, before it is [Unavailable]; null: however long
 */
class Options(
    val trust: Trust = Trust(),
    val memoryMb: Double? = null,
    val threads: Int? = null,
    val cache: String? = null,
    val waitSeconds: Double? = 0.0,
    val busySeconds: Double? = 30.0,
) {
    init {
        require(waitSeconds == null || waitSeconds >= 0) { "waitSeconds is 0 or more, or null: got $waitSeconds" }
        require(busySeconds == null || busySeconds > 0) { "busySeconds is more than 0, or null: got $busySeconds" }
    }

    internal val waits = Waits(waitSeconds ?: -1.0, busySeconds ?: -1.0)
}

/**
 * A call of `train`.
 *
 * @property method null: that of the unfinished run, else the bundle's first
 * @property runSteps length of a run that starts here; null: the bundle's. An unfinished run refuses another one than its own
 * @property mostSteps of this call, and the run goes on in the next one; null: to the end of the run
 * @property seconds time for this call, its commits and judgement included; null: none
 * @property seed of a run that starts here
 * @property settings of a run that starts here: fields of Training but `steps`, docs/reference/settings.md
 * @property newRun an unfinished run ends, and another one starts
 * @property stop asked whenever the call says where it is, on its thread: true ends it in a committed state, and it reports. A
 *     coroutine that is cancelled ends it too, without a report
 */
class Training(
    val method: String? = null,
    val runSteps: Long? = null,
    val mostSteps: Long? = null,
    val seconds: Double? = null,
    val seed: Long? = null,
    val settings: JsonObject? = null,
    val newRun: Boolean = false,
    val stop: ((Progress) -> Boolean)? = null,
)

/**
 * How an answer is made.
 *
 * @property maxTokens of one answer; null: as many as the bundle's context has room for
 * @property temperature 0 takes the likeliest token
 * @property topP of the likeliest tokens those that hold this share together; null: all
 * @property topK so many of the likeliest tokens; null: all
 * @property seed same seed, same answer
 * @property stopTexts texts that end an answer and are no part of it
 * @property notes whether each question is asked with the notes among the user's examples that are nearest to it
 */
class Generation(
    val maxTokens: Long? = null,
    val temperature: Double = 0.0,
    val topP: Double? = null,
    val topK: Long? = null,
    val seed: Long = 0,
    val stopTexts: List<String> = emptyList(),
    val notes: Boolean = false,
)

/** What begins now; of a step: what has ended. */
enum class Phase {
    /** Files are opened and memory is taken. */
    OPEN,

    /** Examples are looked at, before and after. */
    JUDGE,

    /** One step of a run has ended. */
    STEP,

    /** What was learned is written. */
    COMMIT,

    /** An answer is made, or its prompt is read. */
    DECODE,

    /** Files are copied, or examples are tokenized again. */
    STORE,
}

/**
 * Where a call is.
 *
 * @property phase what begins, or of a step what has ended
 * @property step of the run: how many are done; of a prompt that is read: tokens; 0 where there is neither
 * @property steps of the run: how many are planned; of a prompt that is read: its tokens; 0 where there is neither
 * @property loss of the step that has ended
 * @property footprintBytes of the process, as the system judges it
 */
data class Progress(val phase: Phase, val step: Long, val steps: Long, val loss: Double?, val footprintBytes: Long)

/** Formats of an exported adapter. */
enum class AdapterFormat {
    /** A folder for Hugging Face's peft. */
    PEFT,

    /** A folder for mlx-lm. */
    MLX,

    /** A file for llama.cpp. */
    GGUF,
}
