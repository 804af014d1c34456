// SPDX-License-Identifier: Apache-2.0
// The pieces of an adapter on their way into files of other formats: "block_03.q_proj.lora_A" is a matrix of float32.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "format/bundle/bundle.h"

namespace bespoke {

struct AdapterPiece {
  int64_t block;
  std::string linear;  // "q_proj"
  std::string side;    // "lora_A" [rank, in] or "lora_B" [out, rank]
  const Tensor* tensor = nullptr;

  bool is_a() const { return side == "lora_A"; }
  std::string part() const;  // of the block that the linear is in, as in transformers: "self_attn" or "mlp"
};

AdapterPiece piece_named(const std::string& name);  // without its tensor. AdapterError for a name of another form

// Of an adapter, in the order of their names. AdapterError where they are not those of `initial`, the bundle's own.
std::vector<AdapterPiece> pieces_of(const Tensors& adapter, const Tensors& initial, const Manifest& manifest);

// AdapterError, naming `subject`, where the names are not those that are expected.
void check_names(const std::string& subject, const std::set<std::string>& got, const std::set<std::string>& expected,
                 const Manifest& manifest);

std::string joined(const std::vector<std::string>& texts, const char* between);
std::string shape_text(const std::vector<int64_t>& shape);  // "[8, 64]"

// For WholeFolder: an earlier export of these files may be replaced, anything else in the folder is an AdapterError.
std::function<void(const std::string& folder)> replaces_only(std::vector<std::string> files);

}  // namespace bespoke
