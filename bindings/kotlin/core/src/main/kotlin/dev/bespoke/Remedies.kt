// SPDX-License-Identifier: Apache-2.0
package dev.bespoke

import kotlinx.serialization.SerializationException
import kotlinx.serialization.json.JsonArray
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive

/**
 * The parts of an error in Kotlin's words. The core says them in C's; of the parts that name verbs or settings, `references` has the
 * pieces. Only a reference is put into words: a text is never parsed, so what a user wrote stays as it is.
 */
internal fun inKotlin(details: ErrorDetails, references: String): ErrorDetails {
    if (references.isEmpty()) return details
    val parts = try {
        json.parseToJsonElement(references) as? JsonObject ?: return details
    } catch (_: SerializationException) {
        return details
    }
    return ErrorDetails(
        words(parts["subject"], details.subject),
        words(parts["got"], details.got),
        words(parts["expected"], details.expected),
        words(parts["next_step"], details.nextStep),
    )
}

private fun words(pieces: JsonElement?, otherwise: String): String {
    if (pieces !is JsonArray) return otherwise
    return pieces.withIndex().joinToString("") { (place, piece) ->
        when (piece) {
            is JsonObject -> reference(piece).let { if (place == 0 && "do" in piece) it.replaceFirstChar { letter -> letter.uppercaseChar() } else it }
            is JsonPrimitive -> piece.content
            else -> piece.toString()
        }
    }
}

private fun reference(piece: JsonObject): String {
    val verb = (piece["do"] as? JsonPrimitive)?.content
    if (verb != null) {
        val arguments = (piece["arguments"] as? JsonArray).orEmpty().joinToString { (it as? JsonPrimitive)?.content.orEmpty() }
        return "${CALLS[verb] ?: "call $verb"}($arguments)"
    }
    val name = (piece["setting"] as? JsonPrimitive)?.content.orEmpty()
    val shown = SETTINGS[name] ?: name
    return piece["value"]?.let { "$shown = $it" } ?: shown
}
