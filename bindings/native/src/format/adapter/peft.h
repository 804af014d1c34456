// SPDX-License-Identifier: Apache-2.0
// An adapter as a PEFT folder: what `peft.PeftModel.from_pretrained` loads onto the original model.
//
// A piece `block_03.q_proj.lora_A` [rank, in] is PEFT's `base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight`, in the same
// layout. The hash of the base weights travels in the metadata of the safetensors file, which PEFT ignores, so that an adapter trained
// on another base is refused. Same adapter, same bytes.
#pragma once

#include <string>

#include "format/adapter/pieces.h"

namespace bespoke {

constexpr const char* kPeftWeights = "adapter_model.safetensors";

std::string peft_module(const AdapterPiece& piece, const Manifest& manifest);  // of its linear in transformers' model

// Writes adapter_config.json and adapter_model.safetensors into `folder`, which appears whole or not at all. An earlier export there is
// replaced, anything else in it is an AdapterError. The model is that of `manifest`; names and shapes of the pieces are those of `initial`,
// the bundle's own adapter.
void write_peft(const std::string& folder, const Tensors& adapter, const Manifest& manifest, const Tensors& initial);

}  // namespace bespoke
