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
        publicKey: ByteArray?, requireAuthenticated: Boolean, threads: Int, cache: ByteArray?, limitCounts: Int,
    ): Long

    @JvmStatic external fun close(model: Long)

    @JvmStatic external fun install(
        archives: Array<ByteArray>, folder: ByteArray, pinSha256: ByteArray?, publicKey: ByteArray?, requireAuthenticated: Boolean,
    )

    @JvmStatic external fun authenticated(model: Long): ByteArray

    @JvmStatic external fun setLimit(model: Long, memoryMb: Double)

    @JvmStatic external fun setPace(model: Long, share: Double)

    @JvmStatic external fun addExample(model: Long, json: ByteArray, id: ByteArray?, use: ByteArray?): ByteArray

    @JvmStatic external fun correct(model: Long, answer: ByteArray, better: ByteArray): ByteArray

    @JvmStatic external fun listExamples(model: Long): ByteArray

    @JvmStatic external fun countExamples(model: Long): Long

    @JvmStatic external fun forgetExample(model: Long, id: ByteArray): ByteArray

    @JvmStatic external fun plannedTraining(model: Long): ByteArray

    @JvmStatic external fun currentRun(model: Long): ByteArray

    @JvmStatic external fun listVersions(model: Long): ByteArray

    @JvmStatic external fun abandonRun(model: Long): Boolean

    @JvmStatic external fun rollback(model: Long): ByteArray

    @JvmStatic external fun reset(model: Long)

    @JvmStatic external fun exportAdapter(model: Long, folder: ByteArray, format: ByteArray, base: Boolean)

    @JvmStatic external fun importAdapter(model: Long, folder: ByteArray, trustBase: Boolean): Long

    @JvmStatic external fun resetForNewBase(
        path: ByteArray?, descriptor: Int, offset: Long, size: Long, state: ByteArray, pinSha256: ByteArray?, publicKey: ByteArray?,
        requireAuthenticated: Boolean,
    )

    @JvmStatic external fun cancelNew(): Long

    @JvmStatic external fun cancelSet(cancel: Long)

    @JvmStatic external fun cancelFree(cancel: Long)

    @JvmStatic external fun train(
        model: Long, method: ByteArray?, runSteps: Long, mostSteps: Long, seed: Long, hasSeed: Boolean, settings: ByteArray?, newRun: Boolean,
        cancel: Long, deadlineSeconds: Double, progress: ProgressReceiver?,
    ): ByteArray

    @JvmStatic external fun checkTraining(
        model: Long, method: ByteArray?, runSteps: Long, mostSteps: Long, seed: Long, hasSeed: Boolean, settings: ByteArray?, newRun: Boolean,
    )

    @JvmStatic external fun evaluate(
        model: Long, split: ByteArray?, examples: ByteArray?, cancel: Long, deadlineSeconds: Double, progress: ProgressReceiver?,
    ): ByteArray

    @JvmStatic external fun verify(model: Long, cancel: Long, deadlineSeconds: Double, progress: ProgressReceiver?): ByteArray

    @JvmStatic external fun sessionOpen(
        model: Long, maxTokens: Long, temperature: Double, topP: Double, topK: Long, seed: Long, stopTexts: ByteArray?,
        notes: Boolean,
    ): Long

    @JvmStatic external fun sessionClose(session: Long)

    @JvmStatic external fun sessionFeed(session: Long, prompt: ByteArray)

    @JvmStatic external fun sessionNext(session: Long, cancel: Long, deadlineSeconds: Double, progress: ProgressReceiver?): NativePiece

    @JvmStatic external fun score(
        model: Long, prompt: ByteArray, answers: ByteArray, cancel: Long, deadlineSeconds: Double, progress: ProgressReceiver?,
    ): ByteArray

    @JvmStatic external fun classify(
        model: Long, prompt: ByteArray, labels: ByteArray, cancel: Long, deadlineSeconds: Double, progress: ProgressReceiver?,
    ): ByteArray

    @JvmStatic external fun version(): ByteArray

    @JvmStatic external fun instructionSet(): ByteArray
}

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
