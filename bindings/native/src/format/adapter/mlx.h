// SPDX-License-Identifier: Apache-2.0
// An adapter as a folder of mlx-lm: what `mlx_lm.load(model, adapter_path=folder)` puts onto the original model.
//
// mlx-lm computes x A B with A [in, rank] and B [rank, out]: the transpose of each of our pieces. Its scale is alpha / rank. The hash of
// the base weights travels as in a PEFT folder (peft.h).
#pragma once

#include "format/adapter/pieces.h"

namespace bespoke {

constexpr const char* kMlxWeights = "adapters.safetensors";

std::string mlx_module(const AdapterPiece& piece, const Manifest& manifest);  // of its linear in mlx-lm's model

// Writes adapter_config.json and adapters.safetensors into `folder`, as write_peft does its files.
void write_mlx(const std::string& folder, const Tensors& adapter, const Manifest& manifest, const Tensors& initial);

}  // namespace bespoke
