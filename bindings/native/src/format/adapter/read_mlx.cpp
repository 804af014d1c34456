// SPDX-License-Identifier: Apache-2.0
// What the adapter_config.json of mlx-lm says of each linear. Rules are those of mlx_lm.tuner.utils.linear_to_lora_layers.
#include <algorithm>
#include <cmath>

#include "format/adapter/adapter_file.h"
#include "format/adapter/mlx.h"
#include "format/adapter/read_adapter.h"

namespace bespoke {

ForeignAdapter mlx_adapter(const Json& settings, const std::string& path, const Manifest& manifest, const std::set<std::string>& linears) {
  const Json& kind = member(settings, "fine_tune_type");
  if (!kind.is_null() && !is_text(kind, "lora"))
    refuse(path, "fine_tune_type " + shown(kind), "'lora'", "Train with --fine-tune-type lora, the only kind that a bundle can hold");
  const Json& numbers = member(settings, "lora_parameters");
  if (!numbers.is_object()) refuse(path, "lora_parameters " + shown(numbers), "an object with rank and scale");
  const Json &rank = member(numbers, "rank"), &scale = member(numbers, "scale"), &keys = member(numbers, "keys");
  const std::string rank_setting = "lora_parameters.rank " + shown(rank);
  if (!rank.is_number_integer() || rank < 1 || rank > INT32_MAX) refuse(path, rank_setting, "a whole number, at least 1");
  if (!scale.is_number() || !std::isfinite(scale.get<double>())) refuse(path, "lora_parameters.scale " + shown(scale), "a number");
  if (!keys.is_null() && !are_texts(keys)) refuse(path, "lora_parameters.keys " + shown(keys), "a list of names, or none");
  const Json& layers = member(settings, "num_layers");  // the last so many blocks; 0 and less: all
  if (!layers.is_null() && !layers.is_number_integer()) refuse(path, "num_layers " + shown(layers), "a whole number");
  int64_t blocks = 0;
  for (const std::string& name : linears) blocks = std::max(blocks, piece_named(name + ".lora_A").block + 1);
  const int64_t last = layers.is_null() || layers <= 0 || layers >= blocks ? blocks : layers.get<int64_t>();
  const auto is_key = [&](const std::string& name) {
    return std::any_of(keys.begin(), keys.end(), [&](const Json& key) { return is_text(key, name); });
  };
  ForeignAdapter adapter{kMlxWeights, true, {}};
  for (const std::string& name : linears) {
    const AdapterPiece piece = piece_named(name + ".lora_A");
    const std::string module = mlx_module(piece, manifest);
    ForeignLinear linear{module + ".lora_a", module + ".lora_b", rank.get<int64_t>(), rank_setting, scale.get<double>(), false, ""};
    if (!is_key(module)) {  // the whole name means this module, in any block
      if (!keys.is_null() && !is_key(piece.part() + "." + piece.linear))
        linear.left_out = "lora_parameters.keys " + shown(keys);
      else if (piece.block < blocks - last)
        linear.left_out = "num_layers " + shown(layers);
    }
    linear.is_due = !keys.is_null() && !layers.is_null() && linear.left_out.empty();
    adapter.linears.emplace(name, std::move(linear));
  }
  return adapter;
}

}  // namespace bespoke
