// SPDX-License-Identifier: Apache-2.0
// What fuzz/execute.cpp is made of: cases drawn from a corpus of real plans, changes of them, and counts of what was run.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "error.h"
#include "format/bundle/bundle.h"
#include "format/plan/plan_check.h"
#include "format/plan/plan_rules.h"

namespace fuzz {

using Json = nlohmann::json;

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint64_t operator()() { return engine_(); }
  uint64_t operator()(uint64_t below) { return below ? engine_() % below : 0; }

 private:
  std::mt19937_64 engine_;
};

struct Case {              // one method with its plans as they are before they are verified, frees and all; or the plan for answers
  bespoke::Method method;  // of the plan for answers, what stands for one
  bool answers = false;
  std::vector<bespoke::Plan> plans;
  int64_t vocab_size;
  std::string lost_group;  // of weights, which the bundle is without
  bool shorter_adapter = false;
  int fewer_recorded = 0;  // values of the journal, at a replay
  int section = -1;        // that was changed: it is the one to run
};

// A bundle in memory: each tensor a block of its own, so that a read beyond it is seen.
class MemoryBundle : public bespoke::Bundle {
 public:
  explicit MemoryBundle(const Json& corpus);
  void set(const Case& one);  // what of the manifest a case changes
  const bespoke::Manifest& manifest() const override { return manifest_; }
  void remember(bespoke::KnownHashes&) override {}
  void hash_again(const std::string&) override {}
  bespoke::Bytes file(const std::string& name) override;
  const bespoke::Tensors& tensors(const std::string& name) override { return tensors_.at(name); }
  bespoke::Located locate(const std::string&) override { return {}; }
  void drop(const std::string&) override {}

 private:
  bespoke::Manifest manifest_{};
  std::map<std::string, std::string> weights_;
  std::map<std::string, std::vector<uint8_t>> artifacts_;
  std::map<std::string, bespoke::Tensors> tensors_;
  std::vector<std::vector<uint8_t>> data_;
};

class Corpus {
 public:
  explicit Corpus(const Json& document);
  Case draw(Random& random) const { return cases_[random(cases_.size())]; }

  MemoryBundle bundle;
  std::map<std::string, std::string> graphs;  // by name: make_float32_2 and so on

 private:
  std::vector<Case> cases_;
};

struct Counts {
  long tried = 0, passed = 0;
};

struct Mutation {
  const char* name;
  bool (*change)(Case& one, const Corpus& corpus, Random& random);  // false: there was nothing to change
};
const std::vector<Mutation>& mutations();

using Kind = std::tuple<bespoke::Role, bespoke::Lifetime, bespoke::PlaceKind, bespoke::DType, int>;
struct Seen {
  std::set<Kind> kinds;
  std::set<bespoke::Op> ops;
  std::map<int, long> sections;
};

Json summary(long executed, const std::map<std::string, Counts>& counts, const std::map<std::string, long>& errors, const Seen& seen);

}  // namespace fuzz
