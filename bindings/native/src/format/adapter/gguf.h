// SPDX-License-Identifier: Apache-2.0
// An adapter as llama.cpp takes it (`--lora adapter.gguf`), onto the original model in GGUF.
//
// Format: ggml/docs/gguf.md, version 3; names as in convert_lora_to_gguf.py. GGUF lists the extents of a tensor from the one that changes
// fastest, so our row-major bytes stay as they are. llama.cpp rotates neighbouring elements of a head in models of the family "llama",
// transformers those half a head apart: there the rows of q_proj and k_proj, and so those of their lora_B, change places.
#pragma once

#include "format/adapter/pieces.h"

namespace bespoke {

// Writes adapter.gguf into `folder`, as write_peft does its files. Unsupported for a family that llama.cpp calls nothing.
void write_gguf(const std::string& folder, const Tensors& adapter, const Manifest& manifest, const Tensors& initial);

}  // namespace bespoke
