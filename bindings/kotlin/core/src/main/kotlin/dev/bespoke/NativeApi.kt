// SPDX-License-Identifier: Apache-2.0
package dev.bespoke

/**
 * The functions of bespoke.h, one for one (bespoke_jni.cpp). Texts are UTF-8 bytes, null or empty where there is none; models, sessions
 * and cancel tokens are numbers. Each may throw [NativeFailure].
 */
internal object NativeApi {
    const val LIMIT_SINCE_CALL = 2  // BESPOKE_LIMIT_SINCE_CALL

    init {
        System.loadLibrary("bespoke_jni")
    }

    @JvmStatic external fun open(
        path: ByteArray?, descriptor: Int, offset: Long, size: Long, state: ByteArray, memoryMb: Double, pinSha256: ByteArray?,
        publicKey: ByteArray?, requireAuthenticated: Boolean, threads: Int, cache: ByteArray?, limitCounts: Int, call: NativeCall,
    ): Long

    @JvmStatic external fun close(model: Long)

    @JvmStatic external fun install(
        archives: Array<ByteArray>, folder: ByteArray, pinSha256: ByteArray?, publicKey: ByteArray?, requireAuthenticated: Boolean,
        call: NativeCall,
    )

    @JvmStatic external fun authenticated(model: Long): ByteArray

    @JvmStatic external fun setLimit(model: Long, memoryMb: Double)

    @JvmStatic external fun setPace(model: Long, share: Double)

    @JvmStatic external fun addExample(model: Long, json: ByteArray, id: ByteArray?, use: ByteArray?, call: NativeCall): ByteArray

    @JvmStatic external fun addExamples(model: Long, jsons: Array<ByteArray>, use: ByteArray?, call: NativeCall): ByteArray

    @JvmStatic external fun correct(model: Long, answer: ByteArray, better: ByteArray, call: NativeCall): ByteArray

    @JvmStatic external fun listExamples(model: Long, after: ByteArray?, most: Long): ByteArray

    @JvmStatic external fun countExamples(model: Long): Long

    @JvmStatic external fun forgetExample(model: Long, id: ByteArray, call: NativeCall): ByteArray

    @JvmStatic external fun describe(model: Long): ByteArray

    @JvmStatic external fun countTokens(model: Long, prompt: ByteArray): Long

    @JvmStatic external fun trim(model: Long)

    @JvmStatic external fun plannedTraining(model: Long): ByteArray

    @JvmStatic external fun currentRun(model: Long): ByteArray

    @JvmStatic external fun listVersions(model: Long): ByteArray

    @JvmStatic external fun abandonRun(model: Long, call: NativeCall): Boolean

    @JvmStatic external fun rollback(model: Long, call: NativeCall): ByteArray

    @JvmStatic external fun reset(model: Long, call: NativeCall)

    @JvmStatic external fun exportAdapter(model: Long, folder: ByteArray, format: ByteArray, base: Boolean, call: NativeCall)

    @JvmStatic external fun importAdapter(model: Long, folder: ByteArray, trustBase: Boolean, call: NativeCall): Long

    @JvmStatic external fun resetForNewBase(
        path: ByteArray?, descriptor: Int, offset: Long, size: Long, state: ByteArray, pinSha256: ByteArray?, publicKey: ByteArray?,
        requireAuthenticated: Boolean, call: NativeCall,
    )

    @JvmStatic external fun cancelNew(): Long

    @JvmStatic external fun cancelSet(cancel: Long)

    @JvmStatic external fun cancelFree(cancel: Long)

    @JvmStatic external fun train(
        model: Long, method: ByteArray?, runSteps: Long, mostSteps: Long, seed: Long, hasSeed: Boolean, settings: ByteArray?, newRun: Boolean,
        call: NativeCall,
    ): ByteArray

    @JvmStatic external fun checkTraining(
        model: Long, method: ByteArray?, runSteps: Long, mostSteps: Long, seed: Long, hasSeed: Boolean, settings: ByteArray?, newRun: Boolean,
    )

    @JvmStatic external fun evaluate(
        model: Long, split: ByteArray?, examples: ByteArray?, call: NativeCall,
    ): ByteArray

    @JvmStatic external fun verify(model: Long, call: NativeCall): ByteArray

    @JvmStatic external fun sessionOpen(
        model: Long, maxTokens: Long, temperature: Double, topP: Double, topK: Long, seed: Long, stopTexts: ByteArray?,
        notes: Boolean,
    ): Long

    @JvmStatic external fun sessionClose(session: Long)

    @JvmStatic external fun sessionFeed(session: Long, prompt: ByteArray)

    @JvmStatic external fun sessionNext(session: Long, call: NativeCall): NativePiece

    @JvmStatic external fun score(
        model: Long, prompt: ByteArray, answers: ByteArray, call: NativeCall,
    ): ByteArray

    @JvmStatic external fun classify(
        model: Long, prompt: ByteArray, labels: ByteArray, call: NativeCall,
    ): ByteArray

    @JvmStatic external fun federationJoin(model: Long, call: NativeCall)

    @JvmStatic external fun federationLeave(model: Long, call: NativeCall)

    @JvmStatic external fun federationStatus(model: Long): ByteArray

    @JvmStatic external fun federationRequest(model: Long): ByteArray

    @JvmStatic external fun federationRespond(model: Long, request: ByteArray, response: ByteArray, call: NativeCall)

    @JvmStatic external fun federationTakePart(model: Long, call: NativeCall): ByteArray

    @JvmStatic external fun federationAdopt(model: Long, call: NativeCall): ByteArray

    @JvmStatic external fun version(): ByteArray

    @JvmStatic external fun instructionSet(): ByteArray
}

/** A bespoke_call, whose fields the native side reads by their names. */
internal class NativeCall(
    @JvmField val cancel: Long,
    @JvmField val deadlineSeconds: Double,
    @JvmField val progress: ProgressReceiver?,
    @JvmField val waitSeconds: Double,
    @JvmField val busySeconds: Double,
) {
    /** The same call with a deadline, 0 for none, and someone to tell how far it is. */
    fun with(progress: ProgressReceiver, deadlineSeconds: Double = 0.0) =
        NativeCall(cancel, deadlineSeconds, progress, waitSeconds, busySeconds)
}

/** How long calls wait for their turn and for other processes, as [Options] say. */
internal class Waits(val waitSeconds: Double = 0.0, val busySeconds: Double = 0.0)

/** Told on the thread of the call; false cancels it. */
internal fun interface ProgressReceiver {
    fun onProgress(phase: Int, step: Long, steps: Long, loss: Double, footprintBytes: Long): Boolean
}

/** A bespoke_piece, as the native side makes it: no [token] is -1, and [ended] is 0 until the last one. */
internal class NativePiece(private val text: ByteArray, private val token: Long, private val tokens: Long, private val ended: Int) {
    fun typed(): AnswerPiece {
        val end = if (ended == 0) null else AnswerPieceStoppedBecause.entries.getOrElse(ended - 1) { AnswerPieceStoppedBecause.UNKNOWN }
        return AnswerPiece(text.text(), token.takeIf { it >= 0 }, tokens, end)
    }
}

/** A call of the C API that failed, as the native side throws it; [native] makes a [BespokeError] of it. */
internal class NativeFailure(
    private val status: Int,
    private val subject: ByteArray,
    private val got: ByteArray,
    private val expected: ByteArray,
    private val nextStep: ByteArray,
    private val references: ByteArray,
) : RuntimeException() {
    fun typed(): BespokeError =
        errorOf(status, inKotlin(ErrorDetails(subject.text(), got.text(), expected.text(), nextStep.text()), references.text()))
}

/** The four parts of an error: what it is about, what was got, what was expected, what to do. */
internal data class ErrorDetails(val subject: String, val got: String, val expected: String, val nextStep: String) {
    override fun toString() = "$subject: got $got; expected $expected. $nextStep."
}

/** A call of [NativeApi], with its failure as a typed error. */
internal inline fun <T> native(call: () -> T): T = try {
    call()
} catch (failure: NativeFailure) {
    throw failure.typed()
}

internal fun ByteArray.text(): String = toString(Charsets.UTF_8)

/** UTF-8. A surrogate without its partner becomes a question mark: it is no character, and JSON may not hold one. */
internal fun String.bytes(): ByteArray = toByteArray(Charsets.UTF_8)
