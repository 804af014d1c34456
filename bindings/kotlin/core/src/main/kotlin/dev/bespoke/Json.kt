// SPDX-License-Identifier: Apache-2.0
package dev.bespoke

import kotlinx.serialization.KSerializer
import kotlinx.serialization.SerializationException
import kotlinx.serialization.descriptors.SerialDescriptor
import kotlinx.serialization.encoding.Decoder
import kotlinx.serialization.encoding.Encoder
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonEncoder

/** A report may grow: fields that are not known are passed over, and so are values of an enumeration. */
internal val json = Json {
    ignoreUnknownKeys = true
    coerceInputValues = true
}

/** Writes an example as the object that the core takes: which form it is, its fields say. */
internal object ExampleSerializer : KSerializer<Example> {
    override val descriptor: SerialDescriptor = JsonElement.serializer().descriptor

    override fun serialize(encoder: Encoder, value: Example) {
        val written = when (value) {
            is Example.Messages -> json.encodeToJsonElement(Example.Messages.serializer(), value)
            is Example.PromptCompletion -> json.encodeToJsonElement(Example.PromptCompletion.serializer(), value)
            is Example.Preference -> json.encodeToJsonElement(Example.Preference.serializer(), value)
            is Example.Correction -> json.encodeToJsonElement(Example.Correction.serializer(), value)
            is Example.Text -> json.encodeToJsonElement(Example.Text.serializer(), value)
            is Example.Tokens -> json.encodeToJsonElement(Example.Tokens.serializer(), value)
        }
        (encoder as JsonEncoder).encodeJsonElement(written)
    }

    override fun deserialize(decoder: Decoder): Example = throw SerializationException("examples go in, they do not come out")
}
