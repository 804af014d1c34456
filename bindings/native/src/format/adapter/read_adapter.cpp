// SPDX-License-Identifier: Apache-2.0
#include "format/adapter/read_adapter.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "format/adapter/adapter_file.h"
#include "this_call.h"

namespace bespoke {

namespace {

void check_base(const std::string& path, const SafetensorsHeader& header, const std::string& expected, bool trust_base) {
  const auto found = header.metadata.find(kBaseKey);
  if (found == header.metadata.end()) {
    if (trust_base) return;
    throw Error(Kind::Adapter, path + ", base model", "no hash of the base it was trained on", "base " + expected.substr(0, 12),
                "Pass " + setting("trust_base", true) + " if you know that it was trained on this model");
  }
  if (found->second == expected) return;
  throw Error(Kind::Adapter, path + ", base model", "an adapter trained on base " + found->second.substr(0, 12),
              "base " + expected.substr(0, 12), "Give an adapter of this bundle's base, or open the bundle it was trained with");
}

std::set<std::string> names_of(const SafetensorsHeader& header) {
  std::set<std::string> names;
  for (const SafetensorsEntry& entry : header.entries) names.insert(entry.name);
  return names;
}

// The tensors of the file against what the settings say and what the bundle has: all of them, before a number is read.
void check_linears(const std::string& settings, const AdapterTensors& tensors, const ForeignAdapter& foreign, const Manifest& manifest) {
  const std::set<std::string> got = names_of(tensors.header);
  std::set<std::string> expected;
  for (const auto& [_, linear] : foreign.linears) {
    const bool is_there = got.count(linear.a) || got.count(linear.b);
    if (is_there && !linear.left_out.empty())
      refuse(settings, linear.left_out + ", and " + (got.count(linear.a) ? linear.a : linear.b),
             "no tensors where the settings say that there are none");
    if (is_there && linear.rank > manifest.lora_rank)
      refuse(settings, linear.rank_setting,
             "at most " + std::to_string(manifest.lora_rank) + ", the bundle's rank, into which it has to fit",
             "Train the adapter at that rank, or build a bundle with a higher one: " + setting("lora.rank", linear.rank));
    if (is_there || linear.is_due) expected.insert({linear.a, linear.b});
  }
  check_names(tensors.path(), got, expected, manifest);
  if (got.empty()) refuse(tensors.path(), "no tensors", "lora_A and lora_B of at least one linear");
}

class Fitting {  // of the pieces of one adapter to the bundle's rank and scale
 public:
  Fitting(const AdapterTensors& tensors, const ForeignAdapter& foreign, const Manifest& manifest, const Tensors& initial)
      : tensors_(tensors), foreign_(foreign), initial_(initial), scale_(manifest.lora_alpha / static_cast<double>(manifest.lora_rank)) {
    for (const SafetensorsEntry& entry : tensors.header.entries) entries_.emplace(entry.name, &entry);
  }

  void check_shapes() const {
    for (const auto& [name, tensor] : initial_) {
      const ForeignLinear& linear = linear_of(name);
      const SafetensorsEntry* const entry = entry_of(name);
      if (!entry) continue;
      std::vector<int64_t> shape = tensor.shape;
      shape[is_a(name) ? 0 : 1] = linear.rank;
      if (foreign_.is_transposed) std::reverse(shape.begin(), shape.end());
      if (entry->shape != shape)
        throw Error(Kind::Adapter, tensors_.path() + ", tensor " + entry->name, "shape " + shape_text(entry->shape),
                    shape_text(shape) + ", by " + linear.rank_setting, "Give an adapter of this model");
    }
  }

  std::vector<float> piece(const std::string& name) const {
    const Tensor& own = initial_.at(name);
    std::vector<float> numbers(own.size / sizeof(float), 0.0f);
    if (is_a(name)) std::memcpy(numbers.data(), own.data, own.size);  // where the adapter has nothing, A is as it was drawn and B is zero
    const SafetensorsEntry* const entry = entry_of(name);
    if (!entry) return numbers;
    const ForeignLinear& linear = linear_of(name);
    const double factor = is_a(name) || linear.scale == scale_ ? 1 : linear.scale / scale_;
    const std::vector<float> given = tensors_.numbers(*entry, name);
    const auto width = static_cast<size_t>(own.shape[1]), rank = static_cast<size_t>(linear.rank);
    const size_t rows = is_a(name) ? rank : static_cast<size_t>(own.shape[0]), columns = is_a(name) ? width : rank;
    float largest = 0;
    for (size_t row = 0; row < rows; row++) {
      for (size_t column = 0; column < columns; column++) {
        const float number = given[foreign_.is_transposed ? column * rows + row : row * columns + column];
        float& fitted = numbers[row * width + column];
        fitted = factor == 1 ? number : static_cast<float>(number * factor);
        largest = std::isfinite(fitted) ? std::max(largest, std::abs(fitted)) : INFINITY;
      }
    }
    check_size(largest, tensors_.path() + ", piece " + name + " at the bundle's alpha");
    return numbers;
  }

 private:
  static bool is_a(const std::string& name) { return piece_named(name).is_a(); }
  const ForeignLinear& linear_of(const std::string& name) const { return foreign_.linears.at(name.substr(0, name.rfind('.'))); }
  const SafetensorsEntry* entry_of(const std::string& name) const {
    const auto found = entries_.find(is_a(name) ? linear_of(name).a : linear_of(name).b);
    return found == entries_.end() ? nullptr : found->second;
  }

  const AdapterTensors& tensors_;
  const ForeignAdapter& foreign_;
  const Tensors& initial_;
  const double scale_;  // the bundle's
  std::map<std::string, const SafetensorsEntry*> entries_;
};

// What is not trained is no part of a state: it must be the bundle's own, to the bit.
void check_frozen(const std::string& path, const std::string& piece, const std::vector<float>& numbers, const Tensor& own) {
  if (std::memcmp(numbers.data(), own.data, sizeof(float) * numbers.size()) == 0) return;
  throw Error(Kind::Adapter, path + ", piece " + piece, "another A than the bundle's",
              "the bundle's own: it trains B alone (" + setting("lora.train") + ")",
              "Give an adapter that was exported from this bundle, or build one with " + setting("lora.train", "both"));
}

ForeignAdapter described(const std::string& path, const Manifest& manifest, const Tensors& initial) {
  const OwnedJson settings = read_settings(path);
  std::set<std::string> linears;
  for (const auto& [name, _] : initial) linears.insert(name.substr(0, name.rfind('.')));
  const bool is_mlx = !settings->contains("peft_type") && (settings->contains("fine_tune_type") || settings->contains("lora_parameters"));
  return (is_mlx ? mlx_adapter : peft_adapter)(*settings, path, manifest, linears);
}

}  // namespace

std::map<std::string, std::vector<float>> read_adapter(const std::string& folder, const Manifest& manifest, const Tensors& initial,
                                                       bool trust_base) {
  const std::string settings = folder + "/" + kAdapterConfig;
  const ForeignAdapter foreign = described(settings, manifest, initial);
  const AdapterTensors tensors(folder + "/" + foreign.weights);
  check_base(tensors.path(), tensors.header, manifest.base_sha256, trust_base);
  check_linears(settings, tensors, foreign, manifest);
  const Fitting fitting(tensors, foreign, manifest, initial);
  fitting.check_shapes();
  std::map<std::string, std::vector<float>> pieces;
  for (const auto& [name, own] : initial) {
    ThisCall::check();
    std::vector<float> numbers = fitting.piece(name);
    if (manifest.trains(name))
      pieces[name] = std::move(numbers);
    else
      check_frozen(tensors.path(), name, numbers, own);
  }
  return pieces;
}

}  // namespace bespoke
