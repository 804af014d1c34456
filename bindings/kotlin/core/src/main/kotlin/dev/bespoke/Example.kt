// SPDX-License-Identifier: Apache-2.0
// Written by tools/write_schemas.py from bindings/schema.
package dev.bespoke

import kotlinx.serialization.SerialName
import kotlinx.serialization.Serializable

/** What the user gives to learn from. */
@Serializable
sealed interface Example {
    /** What `role` may say. */
    @Serializable
    enum class Role {
        @SerialName("system") SYSTEM,
        @SerialName("user") USER,
        @SerialName("assistant") ASSISTANT,
    }

    /** What `as` may say. */
    @Serializable
    enum class As {
        @SerialName("text") TEXT,
    }

    /** What `end` may say. */
    @Serializable
    enum class End {
        @SerialName("none") NONE,
    }

    /** `messages` of [Example]. */
    @Serializable
    data class Message(
        @SerialName("role") val role: Role,
        @SerialName("content") val content: String,
        @SerialName("weight") val weight: Int? = null,
    )

    @Serializable
    data class Messages(
        @SerialName("messages") val messages: List<Message>,
    ) : Example

    @Serializable
    data class PromptCompletion(
        @SerialName("prompt") val prompt: String,
        @SerialName("completion") val completion: String,
        @SerialName("as") val `as`: As? = null,
    ) : Example

    @Serializable
    data class Preference(
        @SerialName("prompt") val prompt: String,
        @SerialName("chosen") val chosen: String,
        @SerialName("rejected") val rejected: String,
        @SerialName("as") val `as`: As? = null,
    ) : Example

    @Serializable
    data class Correction(
        @SerialName("prompt") val prompt: List<Message>,
        @SerialName("chosen") val chosen: String,
        @SerialName("rejected") val rejected: String,
    ) : Example

    @Serializable
    data class Text(
        @SerialName("text") val text: String,
        @SerialName("end") val end: End? = null,
    ) : Example

    @Serializable
    data class Tokens(
        @SerialName("tokens") val tokens: List<Long>,
        @SerialName("mask") val mask: List<Int>? = null,
    ) : Example
}
