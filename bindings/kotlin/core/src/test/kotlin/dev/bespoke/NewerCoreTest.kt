// SPDX-License-Identifier: Apache-2.0
package dev.bespoke

import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Test

/** What a core of a later version may say. */
class NewerCoreTest {
    @Test
    fun `a word that is not known is UNKNOWN and null stays null`() {
        val piece = { word: String ->
            decoded(AnswerPiece.serializer(), """{"text":"","token":1,"tokens":1,"stopped_because":$word,"new":0}""".bytes())
        }
        assertEquals(AnswerPieceStoppedBecause.UNKNOWN, piece("\"tired\"").stoppedBecause)
        assertEquals(AnswerPieceStoppedBecause.MAX_TOKENS, piece("\"max_tokens\"").stoppedBecause)
        assertNull(piece("null").stoppedBecause)
        val added = """{"id":"a","split":"test","created":true,"truncated_tokens":0,"truncated_trained_tokens":0,"unused_keys":{}}"""
        assertEquals(Split.UNKNOWN, decoded(AddedExample.serializer(), added.bytes()).split)
    }

    @Test
    fun `a phase that is not known is passed over`() {
        assertEquals(Progress(Phase.DECODE, 1, 2, null, 3), progressOf(Phase.DECODE.ordinal, 1, 2, Double.NaN, 3))
        assertNull(progressOf(Phase.entries.size, 1, 2, 0.5, 3))
    }
}
