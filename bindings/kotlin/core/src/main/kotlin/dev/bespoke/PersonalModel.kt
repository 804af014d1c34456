// SPDX-License-Identifier: Apache-2.0
package dev.bespoke

import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.channels.BufferOverflow
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.MutableSharedFlow
import kotlinx.coroutines.flow.asSharedFlow
import kotlinx.coroutines.flow.flow
import kotlinx.serialization.KSerializer
import kotlinx.serialization.builtins.ListSerializer
import kotlinx.serialization.builtins.nullable
import kotlinx.serialization.builtins.serializer
import kotlinx.serialization.json.JsonObject

/**
 * A bundle and one user's state: it takes the user's words, trains, accepts or refuses what was learned, answers, exports, forgets.
 *
 * Functions may be called from any thread. Those that may take long suspend and run off the caller's dispatcher; a coroutine that is
 * cancelled ends its call in a committed state. Calls that compute run one at a time for each model: a second one waits as long as
 * [Options.waitSeconds] says, then it gets [Busy]. Every failure is a [BespokeError].
 */
class PersonalModel private constructor(private val handle: Handle) : AutoCloseable {
    /** The user's examples. */
    val examples = Examples(handle)

    /** The user's part in what the users of an app learn together. */
    val federation = Participation(handle, ::receiver)

    private val told = MutableSharedFlow<Progress>(replay = 1, onBufferOverflow = BufferOverflow.DROP_OLDEST)

    /** Where the calls of this model that compute are; a slow collector misses what came between. */
    val progress: Flow<Progress> = told.asSharedFlow()

    /** What the bundle is known by: "pin", "signature" or "none". */
    val authenticated: String get() = handle.use { NativeApi.authenticated(it).text() }

    /**
     * Adds what the user made of an answer. [answer] is the chat up to and with the answer, the last message; [better] is what it should
     * have been. A method built with `preferences = "simpo"` learns from both, every other from [better] alone.
     */
    suspend fun correct(answer: List<Example.Message>, better: String): AddedExample = handle.call { model, call ->
        val messages = json.encodeToString(ListSerializer(Example.Message.serializer()), answer)
        decoded(AddedExample.serializer(), NativeApi.correct(model, messages.bytes(), better.bytes(), call))
    }

    /** Starts a run or goes on with the unfinished one; at its end the gate accepts or refuses. */
    suspend fun train(training: Training = Training()): TrainReport = handle.call { model, call ->
        val found = NativeApi.train(
            model, training.method?.bytes(), training.runSteps ?: 0, training.mostSteps ?: 0, training.seed ?: 0, training.seed != null,
            training.settings?.toString()?.bytes(), training.newRun, call.with(receiver(training.stop), training.seconds ?: 0.0),
        )
        decoded(TrainReport.serializer(), found)
    }

    /** Raises what [train] would, and does nothing else. */
    suspend fun checkTraining(training: Training = Training()): Unit = handle.call { model, _ ->
        NativeApi.checkTraining(
            model, training.method?.bytes(), training.runSteps ?: 0, training.mostSteps ?: 0, training.seed ?: 0, training.seed != null,
            training.settings?.toString()?.bytes(), training.newRun,
        )
    }

    /** Loss, perplexity and next-token accuracy of what answers: on [examples], of which nothing is kept, or on the user's of a [split]. */
    suspend fun evaluate(examples: List<Example>? = null, split: Split = Split.VALIDATION): Evaluation = handle.call { model, call ->
        val given = examples?.let { json.encodeToString(ListSerializer(ExampleSerializer), it).bytes() }
        val of = if (examples == null) split.name.lowercase().bytes() else null
        decoded(Evaluation.serializer(), NativeApi.evaluate(model, of, given, call.with(receiver)))
    }

    /**
     * Measures what answers on the base model's own answers to other prompts, which the bundle has. [Evaluation.loss] is the loss of what
     * answers, [Evaluation.baseLoss] that of the base model. [DataError] for a bundle without such answers.
     */
    suspend fun evaluateBehaviour(): Evaluation = handle.call { model, call ->
        decoded(Evaluation.serializer(), NativeApi.evaluate(model, "behaviour".bytes(), null, call.with(receiver)))
    }

    /** Runs the bundle's golden vectors; [GoldenMismatch] where one fails. */
    suspend fun verify(): VerifyReport = handle.call { model, call ->
        decoded(VerifyReport.serializer(), NativeApi.verify(model, call.with(receiver)))
    }

    /** The pieces of one answer as they come. To go on with it, use a [conversation]. */
    fun generate(prompt: Prompt, generation: Generation = Generation()): Flow<String> = flow {
        val conversation = conversation(generation)
        try {
            conversation.say(prompt).collect { emit(it) }
        } finally {
            conversation.close()
        }
    }

    /** A conversation: it is fed what is new, and keeps what was said. */
    suspend fun conversation(generation: Generation = Generation()): Conversation = opened(handle.waits) {
        val stops = generation.stopTexts.takeIf { it.isNotEmpty() }
            ?.let { json.encodeToString(ListSerializer(String.serializer()), it).bytes() }
        val session = handle.use {
            NativeApi.sessionOpen(
                it, generation.maxTokens ?: 0, generation.temperature, generation.topP ?: 0.0, generation.topK ?: 0, generation.seed, stops,
                generation.notes,
            )
        }
        Conversation(Handle(session, handle.waits, NativeApi::sessionClose), receiver)
    }

    /** How likely what answers finds each of [answers] to a prompt, as it was trained on both, in their order. */
    suspend fun score(prompt: Prompt, answers: List<String>): List<Score> = handle.call { model, call ->
        decoded(ListSerializer(Score.serializer()), NativeApi.score(model, prompt.bytes(), texts(answers), call.with(receiver)))
    }

    /** The likeliest of [labels] as an answer to a prompt. */
    suspend fun classify(prompt: Prompt, labels: List<String>): Classification = handle.call { model, call ->
        decoded(Classification.serializer(), NativeApi.classify(model, prompt.bytes(), texts(labels), call.with(receiver)))
    }

    /**
     * What training takes with each method, by its plans for each budget of the bundle, the largest first. [train] runs by the first of
     * its method's that have room within the limit; a run may go on by others.
     */
    suspend fun plannedTraining(): List<PlannedTraining> =
        handle.stored { decoded(ListSerializer(PlannedTraining.serializer()), NativeApi.plannedTraining(it)) }

    /** What the open bundle is: its model, licence, context, methods and targets. */
    suspend fun describe(): Description = handle.stored { decoded(Description.serializer(), NativeApi.describe(it)) }

    /** How many tokens a prompt takes, as a new conversation would read it. */
    suspend fun countTokens(prompt: Prompt): Long = handle.stored { NativeApi.countTokens(it, prompt.bytes()) }

    /** Gives the memory back that the model keeps between calls. [Busy] while a call computes. */
    suspend fun trim(): Unit = handle.stored(NativeApi::trim)

    /** The unfinished run, or null. */
    suspend fun currentRun(): Run? = handle.stored { decoded(Run.serializer().nullable, NativeApi.currentRun(it)) }

    /** Accepted adapters, oldest first; the last one answers. */
    suspend fun versions(): List<Version> = handle.stored { decoded(ListSerializer(Version.serializer()), NativeApi.listVersions(it)) }

    /** Ends the unfinished run; whether there was one. */
    suspend fun abandonRun(): Boolean = handle.call(NativeApi::abandonRun)

    /** Back to the adapter accepted before this one; null: the base model answers. */
    suspend fun rollback(): Version? =
        handle.call { model, call -> decoded(Version.serializer().nullable, NativeApi.rollback(model, call)) }

    /** Forgets everything that was learned; examples stay. */
    suspend fun reset(): Unit = handle.call(NativeApi::reset)

    /** The adapter that answers, as a folder for the original model. [base]: also where nothing was accepted yet. */
    suspend fun exportAdapter(folder: String, format: AdapterFormat = AdapterFormat.PEFT, base: Boolean = false): Unit =
        handle.call { model, call -> NativeApi.exportAdapter(model, folder.bytes(), format.name.lowercase().bytes(), base, call) }

    /**
     * Takes a folder of PEFT or mlx-lm as the adapter that answers, and returns its version. Another alpha, a lower rank and fewer linears
     * than the bundle's are taken as they are meant. [trustBase]: also one that does not say its base.
     */
    suspend fun importAdapter(folder: String, trustBase: Boolean = false): Long =
        handle.call { model, call -> NativeApi.importAdapter(model, folder.bytes(), trustBase, call) }

    /** What a call may add to what the process held when it began, also one that runs; null: the bundle's budget. */
    fun setLimit(memoryMb: Double?): Unit = handle.use { NativeApi.setLimit(it, memoryMb ?: 0.0) }

    /** The share of its time in which a call computes, more than 0 and at most 1. */
    fun setPace(share: Double): Unit = handle.use { NativeApi.setPace(it, share) }

    /**
     * Cancels the calls that run, waits for them, and gives all memory back. Its conversations end too. Closing again does nothing.
     * [Busy] from within a call of this model, such as [Training.stop]: return from it first.
     */
    override fun close(): Unit = handle.close()

    private val receiver = receiver(stop = null)

    private fun receiver(stop: ((Progress) -> Boolean)?) = ProgressReceiver { phase, step, steps, loss, footprint ->
        val progress = progressOf(phase, step, steps, loss, footprint) ?: return@ProgressReceiver true
        told.tryEmit(progress)
        stop == null || !stop(progress)
    }

    /** What needs no open model. */
    companion object {
        /** Opens a bundle and the user's state folder, which is made where there is none. */
        suspend fun open(bundle: BundleSource, state: String, options: Options = Options()): PersonalModel = opened(options.waits) { call ->
            val (path, descriptor, offset, size) = bundle.parts()
            val trust = options.trust
            val model = native {
                NativeApi.open(
                    path, descriptor, offset, size, state.bytes(), options.memoryMb ?: 0.0, trust.pinSha256?.bytes(), trust.publicKeyBytes,
                    trust.requireAuthenticated, options.threads ?: 0, options.cache?.bytes(), NativeApi.LIMIT_SINCE_CALL, call,
                )
            }
            PersonalModel(Handle(model, options.waits, NativeApi::close))
        }

        /** Makes the bundle [folder] out of its archives, in the place of an older bundle or of nothing. */
        suspend fun install(archives: List<String>, folder: String, trust: Trust = Trust()): Unit = cancellable(Waits()) { call ->
            val paths = archives.map(String::bytes).toTypedArray()
            native {
                NativeApi.install(paths, folder.bytes(), trust.pinSha256?.bytes(), trust.publicKeyBytes, trust.requireAuthenticated, call)
            }
        }

        /** Moves a state to a bundle with another base model: adapters go, examples are kept. No model has the state open. */
        suspend fun resetForNewBase(bundle: BundleSource, state: String, trust: Trust = Trust()): Unit = cancellable(Waits()) { call ->
            val (path, descriptor, offset, size) = bundle.parts()
            native {
                NativeApi.resetForNewBase(
                    path, descriptor, offset, size, state.bytes(), trust.pinSha256?.bytes(), trust.publicKeyBytes, trust.requireAuthenticated,
                    call,
                )
            }
        }

        /** Of the device core. */
        val version: String get() = NativeApi.version().text()

        /** What the kernels use of this processor: "AVX2", "NEON", ... */
        val instructionSet: String get() = NativeApi.instructionSet().text()
    }
}

/** The user's examples. Tokenized when added, never while training. */
class Examples internal constructor(private val handle: Handle) {
    /**
     * Keeps an example. The same [id] with the same content changes nothing; without one it is the sha256 of the example.
     * [mustKnow]: it is never held out to judge by.
     */
    suspend fun add(example: Example, id: String? = null, mustKnow: Boolean = false): AddedExample = handle.call { model, call ->
        val words = json.encodeToString(ExampleSerializer, example)
        decoded(AddedExample.serializer(), NativeApi.addExample(model, words.bytes(), id?.bytes(), use(mustKnow), call))
    }

    /** Keeps several examples at once, each under the sha256 of its JSON: all of them, or none where one is refused. */
    suspend fun addAll(examples: List<Example>, mustKnow: Boolean = false): List<AddedExample> = handle.call { model, call ->
        val words = examples.map { json.encodeToString(ExampleSerializer, it).bytes() }.toTypedArray()
        decoded(ListSerializer(AddedExample.serializer()), NativeApi.addExamples(model, words, use(mustKnow), call))
    }

    /** At most [most] (0: all) in the order in which they were added, behind the one of the id [after], or from the first one on. */
    suspend fun list(after: String? = null, most: Long = 0): List<ExampleInfo> =
        handle.stored { decoded(ListSerializer(ExampleInfo.serializer()), NativeApi.listExamples(it, after?.bytes(), most)) }

    /** How many there are. */
    suspend fun count(): Long = handle.stored(NativeApi::countExamples)

    /** Deletes an example at once, with every adapter that saw it; stops a run that uses it. */
    suspend fun forget(id: String): Forgotten =
        handle.call { model, call -> decoded(Forgotten.serializer(), NativeApi.forgetExample(model, id.bytes(), call)) }

    private fun use(mustKnow: Boolean): ByteArray? = if (mustKnow) "train".bytes() else null
}

/** What [make] opens, off the caller's dispatcher. A caller that was cancelled meanwhile never gets it, so it is closed then. */
private suspend fun <T : AutoCloseable> opened(waits: Waits, make: (NativeCall) -> T): T {
    var made: T? = null
    try {
        return cancellable(waits) { call -> make(call).also { made = it } }
    } catch (cancelled: CancellationException) {
        made?.close()
        throw cancelled
    }
}

/** Null for a phase of a newer core, which is passed over. */
internal fun progressOf(phase: Int, step: Long, steps: Long, loss: Double, footprintBytes: Long): Progress? =
    Phase.entries.getOrNull(phase)?.let { Progress(it, step, steps, loss.takeUnless(Double::isNaN), footprintBytes) }

private data class Place(val path: ByteArray?, val descriptor: Int, val offset: Long, val size: Long)

private fun BundleSource.parts() = when (this) {
    is BundleSource.At -> Place(path.bytes(), 0, 0, 0)
    is BundleSource.Within -> Place(null, descriptor, offset, size)
}

private fun texts(of: List<String>): ByteArray = json.encodeToString(ListSerializer(String.serializer()), of).bytes()

internal fun <T> decoded(serializer: KSerializer<T>, found: ByteArray): T = json.decodeFromString(serializer, found.text())
