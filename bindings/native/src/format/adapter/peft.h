// SPDX-License-Identifier: Apache-2.0
// An adapter as a PEFT folder, and back: what `peft.PeftModel.from_pretrained` loads onto the original model.
//
// A piece `block_03.q_proj.lora_A` [rank, in] is PEFT's `base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight`, in the same
// layout. The hash of the base weights travels in the metadata of the safetensors file, which PEFT ignores, so that an adapter trained
// on another base is refused. Same adapter, same bytes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "format/adapter/pieces.h"

namespace bespoke {

constexpr const char* kPeftConfig = "adapter_config.json";
constexpr const char* kPeftWeights = "adapter_model.safetensors";
constexpr const char* kPeftBaseKey = "bespoke_base_sha256";

std::string peft_key(const AdapterPiece& piece, const Manifest& manifest);  // its name in the safetensors file

// Both take the model from `manifest`, and names and shapes of the adapter's pieces from `initial`, the bundle's own adapter.

// Writes adapter_config.json and adapter_model.safetensors into `folder`, which appears whole or not at all. An earlier export there is
// replaced, anything else in it is an AdapterError.
void write_peft(const std::string& folder, const Tensors& adapter, const Manifest& manifest, const Tensors& initial);

// Name of each piece -> float32 numbers. AdapterError for another base (by hash), other rank, alpha, linears or shapes, and for kinds of
// LoRA that compute something else. An adapter without our hash, one that PEFT wrote, needs `trust_base`.
std::map<std::string, std::vector<float>> read_peft(const std::string& folder, const Manifest& manifest, const Tensors& initial,
                                                    bool trust_base);

}  // namespace bespoke
