// SPDX-License-Identifier: Apache-2.0
// The cross references of a manifest (check_manifest of sdk/bespoke/bundle/manifest_check.py).
#include "format/bundle/manifest_check.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "format/plan/plan_check.h"
#include "format/number_text.h"
#include "format/untrusted_text.h"

namespace bespoke {

namespace {

constexpr int64_t kNumbersSince = 4;              // minor from which on an artifact says which numbers are part of it
constexpr const char* kAdapterGroup = "adapter";  // of weights: the pieces of the adapter's file that are not trained

std::string shown_range(const std::pair<int64_t, int64_t>& cut) { return std::to_string(cut.first) + " to " + std::to_string(cut.second); }

// The most elements that a tensor may have; the schema caps each extent by the same.
constexpr uint64_t kMostElements = uint64_t{1} << 53;

// What calls an artifact serves: of a graph, or of a graph with these weights.
std::string key_of(const Artifact& artifact) {
  const auto cut = [](const auto& range) { return range ? shown_range(*range) : std::string("all"); };
  std::map<std::string, std::string> parts;
  for (const Baked& baked : artifact.baked) {
    const std::string start = baked.column_start ? " from " + std::to_string(*baked.column_start) : "";
    parts[baked.operand] += ", " + baked.operand + " = " + baked.weight + " (" + cut(baked.rows) + "; " + cut(baked.columns) + start + ")";
  }
  std::string key = artifact.graph;
  for (const auto& [_, part] : parts) key += part;
  for (const auto& [name, number] : artifact.numbers) key += ", " + name + " = " + std::to_string(number);
  return key;
}

class ManifestChecker {
 public:
  ManifestChecker(const Manifest& manifest, const std::string& subject) : m_(manifest), subject_(subject) {}

  void check(const std::vector<std::string>& named) {
    check_names();
    check_files(named);
    check_lengths();
    check_budgets();
    check_frozen();
    check_federation();
    check_artifacts();
  }

 private:
  [[noreturn]] void refuse(const std::string& path, const std::string& got, const std::string& expected) const {
    refuse_manifest(subject_, path, got, expected);
  }

  void once(std::set<std::string>& seen, const std::string& path, const std::string& name, bool number = false) const {
    if (!seen.insert(name).second) refuse(path, (number ? name : in_quotes(name)) + " twice", "each of them once");
  }

  template <class Check>  // of the plans of a method for one budget
  void for_each_set(Check check) const {
    for (const Method& method : m_.methods) {
      check(method, method.plans);
      for (const SmallerPlans& smaller : method.smaller) check(method, smaller.plans);
    }
  }

  void check_names() const {
    std::set<std::string> methods, targets, graphs, lengths, linears;
    for (const Method& method : m_.methods) once(methods, "methods", method.name);
    for (const Target& target : m_.targets) once(targets, "targets", target.name);
    for (const GraphRecord& graph : m_.graphs) once(graphs, "graphs", graph.key);
    for (const int64_t length : m_.sequence_lengths) once(lengths, "sequence_lengths", std::to_string(length), true);
    for (const std::string& linear : m_.lora_linears) once(linears, "lora.linears", linear);
    for_each_set([&](const Method& method, const std::vector<PlanRecord>& plans) {
      std::set<std::string> known;
      for (const PlanRecord& plan : plans) once(known, "methods." + method.name + ".plans", std::to_string(plan.sequence_length), true);
    });
    for (const Target& target : m_.targets) {
      std::set<std::string> artifacts;
      for (const Artifact& artifact : target.artifacts) once(artifacts, "targets." + target.name + ".artifacts", key_of(artifact));
    }
  }

  std::set<std::string> referenced(const std::vector<std::string>& named) const {
    std::set<std::string> names(named.begin(), named.end());
    names.insert(m_.adapter);
    for (const auto* file : {&m_.data_train, &m_.data_valid, &m_.data_behaviour, &m_.golden}) {
      if (*file) names.insert(**file);
    }
    for (const auto& [_, file] : m_.weights) names.insert(file);
    for_each_set([&](const Method&, const std::vector<PlanRecord>& plans) {
      for (const PlanRecord& plan : plans) names.insert(plan.file);
    });
    if (m_.generation) names.insert(m_.generation->file);
    for (const SmallerPlans& smaller : m_.smaller_generation) names.insert(smaller.plans.front().file);
    for (const GraphRecord& graph : m_.graphs) names.insert(graph.file);
    for (const Target& target : m_.targets) {
      for (const Artifact& artifact : target.artifacts) names.insert(artifact.file);
    }
    return names;
  }

  void check_files(const std::vector<std::string>& named) const {
    const std::set<std::string> names = referenced(named);
    for (const std::string& name : names) {
      if (!m_.files.count(name)) refuse("files", "no record of " + in_quotes(name), "one for each file that the manifest names");
    }
    std::unordered_map<std::string, const std::string*> folded;
    for (const auto& [name, _] : m_.files) {
      if (!names.count(name)) refuse("files", in_quotes(name) + ", which no field names", "files that a field names");
      const auto [other, is_new] = folded.emplace(lower_case(name), &name);
      if (!is_new) refuse("files", in_quotes(*other->second) + " and " + in_quotes(name), "names that differ in more than case");
    }
    for (const auto& [name, _] : m_.files) {
      for (size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1)) {
        if (!folded.count(lower_case(name.substr(0, slash)))) continue;
        refuse("files", in_quotes(name) + " inside a file", "files that are not folders");
      }
    }
  }

  void check_federation() const {
    if (!m_.federation) return;
    const FederationRecord& federation = *m_.federation;
    const auto names = [&](const Method& method) { return method.name == federation.method; };
    if (std::none_of(m_.methods.begin(), m_.methods.end(), names)) {
      std::string known;
      for (const Method& method : m_.methods) known += (known.empty() ? "'" : ", '") + method.name + "'";
      refuse("federation.method", in_quotes(federation.method), "one of [" + known + "]");
    }
    if (federation.noise == 0 && federation.budget)
      refuse("federation.budget", repr_of(*federation.budget) + " without noise", "null: what has no noise has no budget");
    if (federation.noise > 0 && !federation.budget)
      refuse("federation.budget", "null", "a number: noise without a budget protects nobody for long");
  }

  void check_lengths() const {
    for_each_set([&](const Method& method, const std::vector<PlanRecord>& plans) {
      for (const PlanRecord& plan : plans) {
        if (std::count(m_.sequence_lengths.begin(), m_.sequence_lengths.end(), plan.sequence_length)) continue;
        std::string lengths;
        for (const int64_t length : m_.sequence_lengths) lengths += (lengths.empty() ? "" : ", ") + std::to_string(length);
        refuse("methods." + method.name, "a plan for length " + std::to_string(plan.sequence_length), "one of " + lengths);
      }
    });
  }

  // Each of the smaller budgets is smaller than the one before it.
  void check_budgets() const {
    for (const Method& method : m_.methods) check_budgets("methods." + method.name + ".smaller_plans", method.smaller);
    check_budgets("smaller_generation", m_.smaller_generation);
  }

  void check_budgets(const std::string& path, const std::vector<SmallerPlans>& smaller) const {
    uint64_t larger = m_.memory_bytes.value_or(0);
    for (const SmallerPlans& one : smaller) {
      if (one.memory_bytes >= larger)
        refuse(path, "plans for " + std::to_string(one.memory_bytes) + " bytes",
               "fewer than " + std::to_string(larger) + ", the budget before it");
      larger = one.memory_bytes;
    }
  }

  // What is not trained is a weight, of the very file that states and exports take it from.
  void check_frozen() const {
    const auto found = m_.weights.find(kAdapterGroup);
    const bool is_there = found != m_.weights.end();
    if (is_there ? !m_.lora_trains_a && found->second == m_.adapter : m_.lora_trains_a) return;
    const auto shown = [](const std::string& file) { return "a group of " + in_quotes(file); };
    refuse("weights", (is_there ? shown(found->second) : "no group") + (" '" + std::string(kAdapterGroup) + "'"),
           (m_.lora_trains_a ? "no group" : shown(m_.adapter)) + ", as lora.train says");
  }

  void check_artifacts() const {
    std::unordered_map<std::string, const GraphRecord*> graphs;
    for (const GraphRecord& graph : m_.graphs) graphs.emplace(graph.key, &graph);
    for (const Target& target : m_.targets) {
      for (const Artifact& artifact : target.artifacts) {
        const auto found = graphs.find(artifact.graph);
        if (found == graphs.end()) refuse("targets." + target.name, "an artifact of graph " + artifact.graph, "a graph of graphs");
        const std::string path = "targets." + target.name + "." + found->second->name;
        std::set<std::string> inputs, foreign;
        for (const TensorSpec& spec : found->second->inputs) inputs.insert(spec.name);
        for (const std::string& operand : artifact.operands) {
          if (!inputs.count(operand)) foreign.insert(operand);
        }
        for (const Baked& baked : artifact.baked) {
          if (!inputs.count(baked.operand)) foreign.insert(baked.operand);
        }
        for (const auto& [name, _] : artifact.numbers) {
          if (!inputs.count(name)) foreign.insert(name);
        }
        if (!foreign.empty()) refuse(path, "the operand " + in_quotes(*foreign.begin()), "its operands");
        check_operands(artifact, *found->second, path);
      }
      for (size_t i = 0; i < target.features.size(); i++) check_feature(target, i);
    }
  }

  // Each operand of the graph is taken, a number or a weight of the artifact's, and one of them only.
  void check_operands(const Artifact& artifact, const GraphRecord& graph, const std::string& graph_path) const {
    const std::string path = graph_path + ".baked";
    std::set<std::string> taken(artifact.operands.begin(), artifact.operands.end());
    for (const auto& [name, _] : artifact.numbers) {
      if (!taken.insert(name).second) {
        refuse(graph_path + ".numbers", "the operand " + in_quotes(name) + " twice", "each of them once, taken or a number");
      }
    }
    for (const Baked& baked : artifact.baked) {
      const std::string& weight = baked.weight;
      if (!taken.insert(baked.operand).second) {
        refuse(path, "the operand " + in_quotes(baked.operand) + " twice", "each of them once, taken or baked");
      }
      const size_t dot = weight.find('.');
      if (dot == std::string::npos || dot + 1 == weight.size() || !m_.weights.count(weight.substr(0, dot))) {
        refuse(path, "the weight " + in_quotes(weight), "a tensor of a group of weights");
      }
      for (const auto& [name, cut] : {std::pair("rows", &baked.rows), std::pair("columns", &baked.columns)}) {
        if (*cut && (*cut)->first >= (*cut)->second) refuse(path + "." + name, shown_range(**cut), "a range that is not empty");
      }
    }
    if (m_.minor < kNumbersSince) return;
    for (const TensorSpec& spec : graph.inputs) {
      if (taken.count(spec.name)) continue;
      refuse(graph_path, "the operand " + in_quotes(spec.name) + " neither taken nor part of it", "each operand of the graph once");
    }
  }

  // It is of tensors of its own, and as large as its view says.
  void check_feature(const Target& target, size_t number) const {
    const Feature& feature = target.features[number];
    const std::string path = "targets." + target.name + ".features." + std::to_string(number);
    for (size_t i = 0; i < number; i++) {
      const Feature& other = target.features[i];
      if (other.tensor_dtype == feature.tensor_dtype && other.tensor_shape == feature.tensor_shape)
        refuse(path, feature.tensor_dtype + " " + shown_shape(feature.tensor_shape) + " twice", "each of them once");
    }
    const bool bytes = feature.view == "bytes";
    const uint64_t of_tensor = elements(feature.tensor_shape, path) * (bytes ? bytes_of(feature.tensor_dtype) : 1);
    const uint64_t own = elements(feature.shape, path) * (bytes ? bytes_of(feature.dtype) : 1);
    const std::string what = bytes ? "bytes" : "elements";
    if (own != of_tensor)
      refuse(path, std::to_string(own) + " " + what + " for " + std::to_string(of_tensor), "as many " + what + " as the tensor has");
    if (feature.view == "same" && feature.dtype != feature.tensor_dtype)
      refuse(path, feature.dtype + " for " + feature.tensor_dtype, feature.tensor_dtype + ", or another view");
  }

  uint64_t elements(const std::vector<int64_t>& shape, const std::string& path) const {
    uint64_t count = 1;
    for (const int64_t extent : shape) {
      const auto size = static_cast<uint64_t>(extent);  // the schema has none below 0
      if (size && count > kMostElements / size)
        refuse(path, "a shape of more than " + std::to_string(kMostElements) + " elements", "fewer");
      count *= size;
    }
    return count;
  }

  static uint64_t bytes_of(const std::string& dtype) {
    return dtype == "int64" ? 8 : dtype == "float32" || dtype == "int32" ? 4 : dtype == "float16" ? 2 : 1;
  }

  const Manifest& m_;
  const std::string& subject_;
};

[[noreturn]] void refuse_piece(const Manifest& manifest, const std::string& piece, const std::string& got, const std::string& expected) {
  throw Error(Kind::Bundle, manifest.adapter + ": " + piece, got, expected + ", as lora says",
              "Get the bundle again from where it was built");
}

std::string group_of(int64_t block) {
  const std::string number = std::to_string(block);
  return "block_" + (number.size() < 2 ? "0" + number : number);
}

}  // namespace

void check_adapter(const Manifest& manifest, const Tensors& pieces) {
  std::set<std::string> known;
  for (int64_t block = 0; block < manifest.num_layers; block++)
    for (const std::string& linear : manifest.lora_linears)
      for (const size_t side : {size_t{0}, size_t{1}}) {  // whose extent is the rank
        const std::string piece = group_of(block) + "." + linear + (side ? ".lora_B" : ".lora_A");
        const std::string expected = "a matrix of rank " + std::to_string(manifest.lora_rank);
        const auto found = pieces.find(piece);
        if (found == pieces.end()) refuse_piece(manifest, piece, "nothing", expected);
        const std::vector<int64_t>& shape = found->second.shape;
        if (shape.size() != 2 || shape[side] != manifest.lora_rank) refuse_piece(manifest, piece, shown_shape(shape), expected);
        known.insert(piece);
      }
  for (const auto& [piece, _] : pieces)
    if (!known.count(piece)) refuse_piece(manifest, piece, "a tensor", "nothing");
}

void check_manifest(const Manifest& manifest, const std::vector<std::string>& named, const std::string& subject) {
  ManifestChecker(manifest, subject).check(named);
}

}  // namespace bespoke
