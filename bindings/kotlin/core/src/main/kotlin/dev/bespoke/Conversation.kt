// SPDX-License-Identifier: Apache-2.0
package dev.bespoke

import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.flow
import kotlinx.serialization.builtins.ListSerializer
import kotlinx.serialization.builtins.serializer

/** What is answered to. */
sealed interface Prompt {
    /**
     * A text to go on with.
     *
     * @property text what comes before the answer
     */
    data class Text(val text: String) : Prompt

    /**
     * Messages, for a model with chat turns.
     *
     * @property messages what is new, the oldest first
     */
    data class Messages(val messages: List<Example.Message>) : Prompt

    /**
     * Tokens, for a bundle without a tokenizer.
     *
     * @property tokens ids in the model's vocabulary
     */
    data class Tokens(val tokens: List<Long>) : Prompt

    /** Short forms. */
    companion object {
        /** One message of the user. */
        fun user(content: String): Prompt = Messages(listOf(Example.Message(Example.Role.USER, content)))
    }
}

internal fun Prompt.bytes(): ByteArray = when (this) {
    is Prompt.Text -> json.encodeToString(String.serializer(), text)
    is Prompt.Messages -> json.encodeToString(ListSerializer(Example.Message.serializer()), messages)
    is Prompt.Tokens -> json.encodeToString(ListSerializer(Long.serializer()), tokens)
}.bytes()

/**
 * A conversation with the adapter that answers. What was said stays in its KV cache between turns; another conversation of the model, or
 * training, may take the cache meanwhile, and then the next turn reads the words again. Close it.
 */
class Conversation internal constructor(private val handle: Handle, private val receiver: ProgressReceiver) : AutoCloseable {
    /** Why the last answer ended; null while it goes on. [AnswerPieceStoppedBecause.CONTEXT_FULL]: begin another with the last messages. */
    @Volatile
    var stoppedBecause: AnswerPieceStoppedBecause? = null
        private set

    /** Feeds what is new, and gives the pieces of the answer as they come. A collector that stops early stops the answer there. */
    fun say(prompt: Prompt): Flow<String> = flow {
        handle.call { session, _ -> NativeApi.sessionFeed(session, prompt.bytes()) }
        stoppedBecause = null
        while (stoppedBecause == null) {
            val piece = next()
            stoppedBecause = piece.stoppedBecause
            if (piece.text.isNotEmpty()) emit(piece.text)
        }
    }

    /** One token of the answer, and the text that it completes. */
    suspend fun next(): AnswerPiece = handle.call { session, call ->
        NativeApi.sessionNext(session, call.with(receiver)).typed()
    }

    /** Ends its call, without waiting for it. Closing again does nothing. */
    override fun close(): Unit = handle.close()
}
