// SPDX-License-Identifier: Apache-2.0
// Written by tools/write_schemas.py from bindings/schema.
package dev.bespoke

/** What an error says to call a verb. */
internal val CALLS: Map<String, String> = mapOf(
    "abandon_run" to "call abandonRun",
    "add" to "call add",
    "authenticated" to "call authenticated",
    "build" to "in Python, call Personalizer.build",
    "check_settings" to "call checkTraining",
    "classify" to "call classify",
    "close" to "call close",
    "conversation" to "call conversation",
    "correct" to "call correct",
    "current_run" to "call currentRun",
    "dial" to "in Python, call Personalizer.dial",
    "estimate" to "in Python, call Personalizer.estimate",
    "evaluate" to "call evaluate",
    "evaluate_behaviour" to "call evaluateBehaviour",
    "export_adapter" to "call exportAdapter",
    "export_base" to "in Python, call bespoke.export_base",
    "export_merged" to "in Python, call PersonalModel.export_merged",
    "feed" to "call say",
    "forget" to "call forget",
    "generate" to "call generate",
    "generate_ids" to "in Python, call PersonalModel.generate_ids",
    "generate_key" to "in Python, call bespoke.generate_key",
    "import_adapter" to "call importAdapter",
    "install" to "call install",
    "list" to "call list",
    "open" to "call open",
    "pack" to "in Python, call bespoke.pack",
    "planned_training" to "call plannedTraining",
    "read_bundle" to "in Python, call bespoke.read_bundle",
    "reset" to "call reset",
    "reset_for_new_base" to "call resetForNewBase",
    "rollback" to "call rollback",
    "score" to "call score",
    "set_limit" to "call setLimit",
    "set_pace" to "call setPace",
    "sign_bundle" to "in Python, call bespoke.sign_bundle",
    "train" to "call train",
    "versions" to "call versions",
)

/** Settings that have another name than in Python. */
internal val SETTINGS: Map<String, String> = mapOf(
    "max_tokens" to "maxTokens",
    "memory_mb" to "memoryMb",
    "pin_sha256" to "pinSha256",
    "public_key" to "publicKey",
    "stop_texts" to "stopTexts",
    "top_k" to "topK",
    "top_p" to "topP",
    "train" to "settings",
    "trust_base" to "trustBase",
)
