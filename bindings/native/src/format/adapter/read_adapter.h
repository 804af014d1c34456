// SPDX-License-Identifier: Apache-2.0
// An adapter from elsewhere becomes one of this bundle: a PEFT folder or one of mlx-lm, of any scale and of no higher rank.
//
// What an adapter computes is scale * B A of each linear. A bundle has one rank R and one scale S. So an adapter of rank r fills the first
// r rows of A and columns of B; the other rows of A are those of the bundle's initial adapter, whose columns of B are zero, as they are for
// a linear that the adapter does not have: the product is the same, and further training can use them. B is multiplied by scale / S.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "format/adapter/pieces.h"
#include "format/json.h"

namespace bespoke {

constexpr const char* kAdapterConfig = "adapter_config.json";
constexpr const char* kBaseKey = "bespoke_base_sha256";  // in a safetensors file's metadata, which neither PEFT nor mlx-lm reads

// One linear of the bundle, as the settings of an adapter describe it.
struct ForeignLinear {
  std::string a, b;  // names of its tensors
  int64_t rank;
  std::string rank_setting;  // what says the rank: "r 4"
  double scale;
  bool is_due = false;   // the settings say that the adapter has it
  std::string left_out;  // the setting that says that it has not
};

struct ForeignAdapter {
  const char* weights;                           // file name
  bool is_transposed;                            // A is [in, rank] and B [rank, out]
  std::map<std::string, ForeignLinear> linears;  // by "block_03.q_proj"; all those of the bundle
};

// What the settings of each format say. `path` is that of the settings. AdapterError for kinds of LoRA that compute something else.
ForeignAdapter peft_adapter(const Json& settings, const std::string& path, const Manifest& manifest, const std::set<std::string>& linears);
ForeignAdapter mlx_adapter(const Json& settings, const std::string& path, const Manifest& manifest, const std::set<std::string>& linears);

// Name of each trained piece -> float32 numbers, in the shape that it has in `initial`, the bundle's own adapter. AdapterError for another
// base (by hash), a higher rank, other linears or shapes, and for kinds of LoRA that compute something else. An adapter without our hash,
// one that its own library wrote, needs `trust_base`.
std::map<std::string, std::vector<float>> read_adapter(const std::string& folder, const Manifest& manifest, const Tensors& initial,
                                                       bool trust_base);

}  // namespace bespoke
