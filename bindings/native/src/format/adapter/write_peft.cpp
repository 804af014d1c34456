// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "format/adapter/peft.h"
#include "format/adapter/read_adapter.h"
#include "format/adapter/safetensors_file.h"
#include "format/json.h"

namespace bespoke {

namespace {

// Names of linears; as a pattern where the model has a part for images whose linears have the same names.
Json target_modules(const Manifest& manifest) {
  std::vector<std::string> linears = manifest.lora_linears;
  std::sort(linears.begin(), linears.end());
  if (manifest.decoder_path == "model") return linears;
  std::string path;
  for (const char c : manifest.decoder_path) path += c == '.' ? std::string("\\.") : std::string(1, c);
  return path + "\\.layers\\.\\d+\\.(self_attn|mlp)\\.(" + joined(linears, "|") + ")";
}

std::string peft_settings(const Manifest& manifest) {
  const double alpha = manifest.lora_alpha;
  const bool is_whole = alpha == std::floor(alpha) && alpha < 0x1p63;
  const Json settings = {
      {"base_model_name_or_path", manifest.model_name},
      {"bias", "none"},
      {"fan_in_fan_out", false},
      {"inference_mode", true},
      {"init_lora_weights", true},
      {"lora_alpha", is_whole ? Json(static_cast<int64_t>(alpha)) : Json(alpha)},
      {"lora_dropout", 0.0},
      {"modules_to_save", nullptr},
      {"peft_type", "LORA"},
      {"r", manifest.lora_rank},
      {"target_modules", target_modules(manifest)},
      {"task_type", "CAUSAL_LM"},
      {"use_dora", false},
      {"use_rslora", false},
  };
  return settings.dump(2, ' ', true) + "\n";
}

}  // namespace

std::string peft_module(const AdapterPiece& piece, const Manifest& manifest) {
  return manifest.decoder_path + ".layers." + std::to_string(piece.block) + "." + piece.part() + "." + piece.linear;
}

void write_peft(const std::string& folder, const Tensors& adapter, const Manifest& manifest, const Tensors& initial) {
  SafetensorsFile tensors;
  for (const AdapterPiece& piece : pieces_of(adapter, initial, manifest))
    tensors.add("base_model.model." + peft_module(piece, manifest) + "." + piece.side + ".weight", *piece.tensor);
  WholeFolder whole(folder, Kind::Adapter, WholeFolder::Readers::owner, replaces_only({kAdapterConfig, kPeftWeights}));
  write_text(whole, kAdapterConfig, peft_settings(manifest));
  tensors.write(whole, kPeftWeights, {{"format", "pt"}, {kBaseKey, manifest.base_sha256}});
  whole.finish();
}

}  // namespace bespoke
