// SPDX-License-Identifier: Apache-2.0
#include "format/adapter/mlx.h"

#include "format/adapter/read_adapter.h"
#include "format/adapter/safetensors_file.h"
#include "format/json.h"

namespace bespoke {

namespace {

// Where mlx-lm has the blocks: its models keep the decoder of one that sees images too in `language_model`.
std::string path_of(const Manifest& manifest) { return manifest.decoder_path == "model" ? "model" : "language_model.model"; }

std::string mlx_settings(const Manifest& manifest) {
  std::vector<std::string> keys;
  for (const std::string& linear : manifest.lora_linears) keys.push_back(AdapterPiece{0, linear, ""}.part() + "." + linear);
  const Json settings = {
      {"fine_tune_type", "lora"},
      {"num_layers", manifest.num_layers},
      {"lora_parameters",
       {{"rank", manifest.lora_rank},
        {"scale", manifest.lora_alpha / static_cast<double>(manifest.lora_rank)},
        {"dropout", 0.0},
        {"keys", keys}}},
  };
  return settings.dump(2, ' ', true) + "\n";
}

}  // namespace

std::string mlx_module(const AdapterPiece& piece, const Manifest& manifest) {
  return path_of(manifest) + ".layers." + std::to_string(piece.block) + "." + piece.part() + "." + piece.linear;
}

void write_mlx(const std::string& folder, const Tensors& adapter, const Manifest& manifest, const Tensors& initial) {
  SafetensorsFile tensors;
  for (const AdapterPiece& piece : pieces_of(adapter, initial, manifest))
    tensors.add(mlx_module(piece, manifest) + (piece.is_a() ? ".lora_a" : ".lora_b"), *piece.tensor, true);
  WholeFolder whole(folder, Kind::Adapter, WholeFolder::Readers::owner, replaces_only({kAdapterConfig, kMlxWeights}));
  write_text(whole, kAdapterConfig, mlx_settings(manifest));
  tensors.write(whole, kMlxWeights, {{"format", "mlx"}, {kBaseKey, manifest.base_sha256}});
  whole.finish();
}

}  // namespace bespoke
