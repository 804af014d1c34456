// SPDX-License-Identifier: Apache-2.0
// The corpus of fuzz/execute.cpp: plans, graphs' signatures and weights, out of one JSON document; and what is printed at the end.
#include <algorithm>

#include "execute.h"

using namespace bespoke;

namespace fuzz {

namespace {

DType dtype_of(const std::string& name) {
  const auto found = std::find(std::begin(kDTypeNames), std::end(kDTypeNames), name);
  return static_cast<DType>(found - std::begin(kDTypeNames));
}

std::vector<TensorSpec> specs(const Json& list) {
  std::vector<TensorSpec> out;
  for (const Json& spec : list)
    out.push_back({spec["name"], spec["shape"].get<std::vector<int64_t>>(), dtype_of(spec["dtype"]), spec["role"]});
  return out;
}

}  // namespace

MemoryBundle::MemoryBundle(const Json& corpus) {
  manifest_.vocab_size = corpus["vocab_size"];
  manifest_.context_length = corpus["context_length"];
  Target target{"touch", {}, {}};
  for (const Json& graph : corpus["graphs"]) {
    const std::string key = graph["key"];
    manifest_.graphs.push_back({key, graph["name"], "graph", specs(graph["inputs"]), specs(graph["outputs"])});
    Artifact artifact{key, key, {}, 0, 0, {}, {}};
    for (const TensorSpec& spec : manifest_.graphs.back().inputs) artifact.operands.push_back(spec.name);
    target.artifacts.push_back(std::move(artifact));
    const Json& gather = graph["gather"];
    artifacts_[key] = gather.is_null() ? std::vector<uint8_t>{0xff, 0xff} : gather.get<std::vector<uint8_t>>();
  }
  manifest_.targets.push_back(std::move(target));
  for (const auto& [group, tensors] : corpus["weights"].items()) {
    weights_[group] = group;
    for (const auto& [name, spec] : tensors.items()) {
      Tensor tensor{dtype_of(spec["dtype"]), spec["shape"].get<std::vector<int64_t>>(), nullptr, 0};
      tensor.size = bytes_of(tensor.dtype);
      for (const int64_t extent : tensor.shape) tensor.size *= static_cast<size_t>(extent);
      data_.emplace_back(tensor.size, uint8_t{0x11});
      tensor.data = data_.back().data();
      tensors_[group].emplace(name, std::move(tensor));
    }
  }
  manifest_.weights = weights_;
}

void MemoryBundle::set(const Case& one) {
  manifest_.vocab_size = one.vocab_size;
  manifest_.generation = one.answers ? std::optional(one.method.plans[0]) : std::nullopt;
  if (!one.lost_group.empty() || manifest_.weights.size() != weights_.size()) manifest_.weights = weights_;
  manifest_.weights.erase(one.lost_group);
}

Bytes MemoryBundle::file(const std::string& name) {
  static const uint8_t unaligned[3] = {};  // what no advice about pages can be given for
  const auto artifact = artifacts_.find(name);
  return artifact == artifacts_.end() ? Bytes{unaligned + 1, 1} : Bytes{artifact->second.data(), artifact->second.size()};
}

Corpus::Corpus(const Json& document) : bundle(document) {
  for (const Json& graph : document["graphs"]) graphs[graph["name"]] = graph["key"];
  for (const Json& record : document["methods"]) {
    Case one{};
    one.vocab_size = document["vocab_size"];
    one.method.name = record["name"];
    one.answers = record["answers"];
    one.method.training = training_from_json(record["training"].dump(), "training");
    one.method.scalars = record["scalars"].get<std::map<std::string, double>>();
    one.method.replayable = record["replayable"];
    for (const Json& plan : record["plans"]) {
      const std::string text = plan["document"].dump();
      one.plans.push_back(parse_plan({reinterpret_cast<const uint8_t*>(text.data()), text.size()}, "plan"));
      one.method.plans.push_back({plan["sequence_length"].get<int64_t>(), "plan", one.plans.back().estimate});
    }
    cases_.push_back(std::move(one));
  }
}

Json summary(long executed, const std::map<std::string, Counts>& counts, const std::map<std::string, long>& errors, const Seen& seen) {
  Json out = {{"executed", executed}, {"refused", errors}};
  for (const auto& [name, count] : counts) out["mutations"][name] = {{"tried", count.tried}, {"passed", count.passed}};
  for (const Op op : seen.ops) out["instructions"].push_back(kOpNames[static_cast<size_t>(op)]);
  for (const auto& [section, times] : seen.sections) out["sections"][kSectionNames[section]] = times;
  for (const auto& [role, lifetime, place, dtype, rank] : seen.kinds)
    out["kinds"].push_back({kRoleNames[static_cast<size_t>(role)], kLifetimeNames[static_cast<size_t>(lifetime)],
                            kPlaceKindNames[static_cast<size_t>(place)], kDTypeNames[static_cast<size_t>(dtype)], rank});
  return out;
}

}  // namespace fuzz
