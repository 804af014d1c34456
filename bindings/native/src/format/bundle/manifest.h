// SPDX-License-Identifier: Apache-2.0
// What the core needs of manifest.json, after the whole document was held against bindings/schema/manifest.schema.json.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "enums.h"
#include "format/plan/plan.h"

namespace bespoke {

constexpr const char* kManifest = "manifest.json";
constexpr size_t kMaxManifest = 8u << 20, kMaxManifestDepth = 16, kMaxManifestItems = 500'000;

struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
  DType dtype;
  std::string role;
};

struct GraphRecord {
  std::string key, name, file;
  std::vector<TensorSpec> inputs, outputs;
};

// A weight that is part of an artifact, where the graph has an operand.
struct Baked {
  std::string operand, weight;                               // `weight`: group and tensor, with a dot between them
  std::optional<std::pair<int64_t, int64_t>> rows, columns;  // first, and the one after the last; none: all
  std::optional<int64_t> column_start;
};

struct Artifact {
  std::string graph, file;
  std::vector<std::string> operands;  // of the graph's inputs, in the artifact's order
  uint64_t workspace_bytes, engine_bytes;
  std::vector<Baked> baked;                // none: it serves every call of the graph
  std::map<std::string, int64_t> numbers;  // operands that are part of it, too: such as column_start
};

// What operands and results of one type and shape are to a target's artifacts. The core hands tensors on as they are: it only checks.
struct Feature {
  std::string tensor_dtype, dtype, view;
  std::vector<int64_t> tensor_shape, shape;
};

struct Target {
  std::string name;
  std::string options;  // as JSON, for messages
  std::vector<Artifact> artifacts;
  std::vector<Feature> features;
};

struct PlanRecord {
  int64_t sequence_length;
  std::string file;
  Estimate estimate;
};

struct SmallerPlans {     // over the same weights and the same state: a run may go on by them
  uint64_t memory_bytes;  // the budget that they fit
  std::vector<PlanRecord> plans;
};

struct Training {  // no field has a default on the device
#define BESPOKE_FIELD(name, type) type name;
#define BESPOKE_LATER_FIELD(name, type, meant) type name;
#include "../../../../schema/training.inc"
#undef BESPOKE_LATER_FIELD
#undef BESPOKE_FIELD

  bool accumulates() const { return accumulation > 1 || clip_norm.has_value(); }
};

struct Method {
  std::string name;
  Training training;
  std::string options;  // a JSON object, keys sorted; all of them resolved, so two methods with the same text compute the same
  std::map<std::string, double> scalars;
  bool replayable;
  std::vector<PlanRecord> plans;      // for the bundle's budget
  std::vector<SmallerPlans> smaller;  // for smaller ones, the largest first

  Method by(const SmallerPlans& others) const;  // itself, with the plans of a smaller budget in the place of its own
};

uint64_t peak_of(const std::vector<PlanRecord>& plans);  // bytes: the largest of their estimates

struct FileRecord {
  std::string sha256;
  uint64_t size;
};

struct TextRecord {
  std::optional<std::string> tokenizer, tokenizer_bin, turns;  // files; without tokenizer_bin the core takes token ids only
  TrainOn train_on;
  std::optional<int64_t> bos_id, eos_id;
  std::vector<int64_t> stop_ids;
  int64_t vocab_size;
};

struct FederationRecord {                // what users learn together
  std::string task, server_key, method;  // the key: ed25519, in hexadecimal
  int64_t seed = 0;                      // of the noise of all rounds
  double clip = 0, noise = 0;            // of the numbers that are sent of a round: their largest norm, and noise in units of it
  std::optional<double> budget;          // rho
};

struct Manifest {
  std::string sha256;  // of the document
  int64_t minor;       // version of the format that it is written in
  std::string model_name, licence, base_sha256;
  std::string family;        // "llama", ...
  std::string decoder_path;  // of the model in transformers, where PEFT's names begin
  int64_t num_layers, num_heads, num_kv_heads, vocab_size;
  int64_t lora_rank;
  double lora_alpha;
  std::vector<std::string> lora_linears;
  bool lora_trains_a = true;  // else A is a weight that is found in the adapter's file, and in no state
  TextRecord text;
  int64_t context_length;
  std::vector<int64_t> sequence_lengths;
  std::optional<uint64_t> memory_bytes;          // of the budget
  std::vector<Method> methods;                   // none: the bundle answers and does not train
  std::optional<PlanRecord> generation;          // the plan for answers
  std::vector<SmallerPlans> smaller_generation;  // one plan in each
  std::optional<FederationRecord> federation;
  std::map<std::string, std::string> weights;  // group -> file
  std::string adapter;
  std::optional<std::string> data_train, data_valid, data_behaviour, golden;
  std::vector<GraphRecord> graphs;
  std::vector<Target> targets;
  std::map<std::string, FileRecord> files;

  bool trains(const std::string& piece) const { return lora_trains_a || piece.compare(piece.rfind('.') + 1, piece.npos, "lora_A") != 0; }
  const GraphRecord* graph(const std::string& key) const;
  const Method& method(const std::string& name) const;  // empty: the first; ConfigError
};

// Reads the document: schema, formats' version rules, file names, cross references. BundleError, BundleVersionError.
Manifest read_manifest(Bytes document, const std::string& subject);

constexpr size_t kMostTrainingBytes = size_t{1} << 16;  // of the JSON of settings

// Settings of a run that starts: `base` with the fields of the JSON object `overrides`. ConfigError naming the field.
Training override_training(const Training& base, const std::string& overrides);
std::string training_json(const Training& training);
Training training_from_json(const std::string& text, const std::string& subject);

}  // namespace bespoke
