// SPDX-License-Identifier: Apache-2.0
// For tests of what drives a machine: a machine of four numbers, a bundle in memory, and a state folder that goes with its test.
#pragma once

#include <cstdlib>
#include <doctest/doctest.h>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "exec/noise.h"
#include "train/training.h"

namespace fakes {

using namespace bespoke;

struct Script {  // what happens to a machine, shared by the machines that a test makes one after another
  std::atomic<bool> stop{false};
  Limits limits;
  std::function<void(const Told&)> listener;
  Control control{limits, {{&stop}, std::nullopt, [this](const Told& told) {
                             if (listener) listener(told);
                             return false;
                           }}};
  std::set<int64_t> bad_steps;                              // whose loss is NaN
  int64_t full_at = -1;                                     // step at which memory runs out
  int64_t stop_within = -1;                                 // step within which a stop is asked for
  int64_t stop_in_evaluation = -1;                          // number of the evaluated batch after which one is
  double direction = 1;                                     // positive: training makes the loss better
  double best_b = std::numeric_limits<double>::infinity();  // of B: beyond it the loss grows again
  double harm = 0;                                          // that B does to the loss on behaviour rows
  bool replayable = false;
  int64_t machines = 0;  // that live
  int64_t steps = 0, replays = 0, evaluated = 0;
};

constexpr int32_t kBehaviour = 49, kStop = 48;  // tokens: with which a behaviour row begins, and that ends answers

// The adapter is two numbers (A and B), an optimizer keeps a third and a fourth. What a step does depends on its batch, rate, number
// and seed, as a method's would.
class Machine : public Steps {
 public:
  Machine(Script& script, const Method& method) : script_(script), method_(method) { script.machines++; }
  ~Machine() override { script_.machines--; }

  Outcome train_step(const std::vector<Batch>& batches, double rate, int64_t step, uint64_t seed) override {
    if (step == script_.stop_within) script_.stop = true;
    if (script_.stop) throw Abandoned{};
    if (step == script_.full_at) throw Error(Kind::Budget, "a call", "too much", "less", "Raise the budget");
    float gradient = 0;
    for (const Batch& batch : batches)
      for (size_t i = 0; i < batch.tokens.size(); i++) gradient += batch.mask[i] * static_cast<float>(batch.targets[i]);
    apply(gradient, rate, step, seed);
    script_.steps++;
    const bool bad = script_.bad_steps.count(step) > 0;
    Outcome outcome;
    outcome.metrics["loss"] = bad ? std::numeric_limits<double>::quiet_NaN() : 1.0 / static_cast<double>(step);
    if (script_.replayable) outcome.recorded = {gradient};
    return outcome;
  }
  void replay_step(const std::vector<float>& recorded, double rate, int64_t step, uint64_t seed) override {
    apply(recorded.at(0), rate, step, seed);
    script_.replays++;
    flip();
  }
  std::pair<double, double> evaluate_batch(const Batch& batch, const AdapterView* adapter) override {
    if (script_.evaluated++ == script_.stop_in_evaluation) script_.stop = true;
    const double b = static_cast<double>(adapter ? *adapter->at("x.lora_B").data : copies_[now_][1]);
    if (batch.tokens.at(0) == kBehaviour) return {(1.0 + script_.harm * b) * static_cast<double>(batch.tokens_trained), 0};
    const double beyond = std::max(0.0, b - script_.best_b);
    return {(2.0 - b + 2 * beyond) * static_cast<double>(batch.tokens_trained), 0};
  }
  void flip() override { now_ = 1 - now_; }
  void fill(const TensorSource& tensors) override {
    for (auto& copy : copies_)
      for (size_t i = 0; i < 4; i++) copy[i] = tensors.count(kNames[i]) ? *tensors.at(kNames[i]).data : 0;
  }
  std::vector<NamedTensor> state() const override { return views(now_, script_.replayable ? 2 : 4); }
  std::vector<NamedTensor> adapter() override { return views(now_, 2); }
  std::vector<NamedTensor> following() const override { return views(1 - now_, script_.replayable ? 2 : 4); }
  std::vector<NamedTensor> sums() const override { return {}; }
  bool accumulates() const override { return false; }
  bool replayable() const override { return script_.replayable; }
  std::vector<int64_t> sequence_lengths() const override { return method_.training.sequence_lengths; }
  Control& control() const override { return script_.control; }
  std::map<std::string, double> seconds_by_stage() const override { return {{"forward", 1.0 * static_cast<double>(script_.steps)}}; }
  double longest_call_seconds() const override { return 0.25; }

 private:
  static constexpr const char* kNames[4] = {"x.lora_A", "x.lora_B", "x.lora_A.m", "x.lora_B.m"};

  void apply(float gradient, double rate, int64_t step, uint64_t seed) {
    const auto& from = copies_[now_];
    auto& to = copies_[1 - now_];
    float z[2];
    noise(z, 2, seed, static_cast<uint32_t>(step), 0, 0, 0, Distribution::rademacher);
    for (size_t i = 0; i < 2; i++) {
      to[i + 2] = 0.9f * from[i + 2] + gradient * z[i];
      to[i] = from[i] + static_cast<float>(rate * script_.direction) * (1 + 1e-3f * (script_.replayable ? gradient * z[i] : to[i + 2]));
    }
  }
  std::vector<NamedTensor> views(int copy, size_t count) const {
    std::vector<NamedTensor> found;
    for (size_t i : {0u, 2u, 1u, 3u})  // in the order of their names
      if (i < count) found.push_back({kNames[i], {1, 1}, &copies_[copy][i]});
    return found;
  }

  Script& script_;
  const Method& method_;
  float copies_[2][4] = {};
  int now_ = 0;
};

class MemoryBundle : public Bundle {
 public:
  MemoryBundle() {
    Method method;
    method.name = "first";
    method.training = {0.01, 12, {4, 8}, 2, 1, std::nullopt, Schedule::linear, 2, 3, 0.5, 0.05, 0, 1000, 2, std::nullopt, false};
    method.options = "{\"epsilon\":0.01}";
    method.replayable = false;
    method.plans = {{4, "4.json", {}}, {8, "8.json", {}}};
    manifest_.methods = {method, method};
    manifest_.methods[1].name = "second";
    manifest_.vocab_size = 50;
    manifest_.adapter = "adapter";
    manifest_.data_train = manifest_.data_valid = "data";
    for (int32_t row = 0; row < 5; row++)
      for (int32_t token = 0; token < 3 + row; token++) {
        tokens_.push_back((7 * row + token) % 50);
        mask_.push_back(token > 0);
        if (token == 2 + row) offsets_.push_back(static_cast<int64_t>(tokens_.size()));
      }
    tensors_["data"] = rows_of(tokens_, mask_, offsets_);
    // Of every second row the base's answer ends.
    for (int32_t row = 0; row < 2 * kBehaviourRows; row++) {
      const std::vector<int32_t> tokens = {kBehaviour, 30 + row, 43, 44, row % 2 ? 45 : kStop};
      behaviour_tokens_.insert(behaviour_tokens_.end(), tokens.begin(), tokens.end());
      for (const uint8_t bit : {0, 0, 1, 1, 1}) behaviour_mask_.push_back(bit);
      behaviour_offsets_.push_back(static_cast<int64_t>(behaviour_tokens_.size()));
    }
    tensors_["behaviour"] = rows_of(behaviour_tokens_, behaviour_mask_, behaviour_offsets_);
    for (size_t i = 0; i < 2; i++)
      tensors_["adapter"][i ? "x.lora_B" : "x.lora_A"] = {DType::float32, {1, 1}, reinterpret_cast<const uint8_t*>(&initial_[i]), 4};
  }
  const Manifest& manifest() const override { return manifest_; }
  Manifest& manifest() { return manifest_; }
  static constexpr int32_t kBehaviourRows = 5;  // whose answers end
  // With behaviour rows; `answers`: and a plan for answers.
  void judges_behaviour(bool answers) {
    manifest_.data_behaviour = "behaviour";
    manifest_.text.stop_ids = {kStop};
    manifest_.context_length = 100;
    if (answers) manifest_.generation = PlanRecord{8, "answers.json", {}};
  }
  void remember(KnownHashes&) override {}
  void hash_again(const std::string&) override {}
  Bytes file(const std::string&) override { return {}; }
  const Tensors& tensors(const std::string& name) override { return tensors_.at(name); }
  Located locate(const std::string&) override { return {}; }
  void drop(const std::string&) override {}

 private:
  static Tensors rows_of(const std::vector<int32_t>& tokens, const std::vector<uint8_t>& mask, const std::vector<int64_t>& offsets) {
    const auto bytes = [](const auto& values) { return reinterpret_cast<const uint8_t*>(values.data()); };
    return {{"tokens", {DType::int32, {static_cast<int64_t>(tokens.size())}, bytes(tokens), 4 * tokens.size()}},
            {"mask", {DType::uint8, {static_cast<int64_t>(mask.size())}, bytes(mask), mask.size()}},
            {"offsets", {DType::int64, {static_cast<int64_t>(offsets.size())}, bytes(offsets), 8 * offsets.size()}}};
  }

  Manifest manifest_{};
  std::vector<int32_t> tokens_, behaviour_tokens_;
  std::vector<uint8_t> mask_, behaviour_mask_;
  std::vector<int64_t> offsets_{0}, behaviour_offsets_{0};
  float initial_[2] = {0.5f, 0.0f};
  std::map<std::string, Tensors> tensors_;
};

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/bespoke_loop_XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

// Everything that a call of `train` wants.
class Device {
 public:
  Device() : store(open()) {}
  std::unique_ptr<StateStore> open() const {
    static constexpr int64_t shape[2] = {1, 1};
    return StateStore::open(folder.path + "/state", std::string(64, 'a'),
                            {{"x.lora_A", shape, 2, nullptr}, {"x.lora_B", shape, 2, nullptr}});
  }
  void add_examples(int32_t count) {
    for (int32_t number = 0; number < count; number++) {
      const std::string text = std::to_string(number);
      TokenRow row;
      row.tokens = {1, 2 + number % 40, 3 + number % 30};
      row.mask = {0, 1, 1};
      store->add_example(StateStore::identified("{\"text\":\"" + text + "\"}", text), {row});
    }
  }
  Personal personal() {
    return {bundle,
            *store,
            script.control,
            [this](const Method& method, MemoryGuard&, const std::string&) { return std::make_unique<Machine>(script, method); },
            {}};
  }

  Folder folder;
  Script script;
  MemoryBundle bundle;
  std::unique_ptr<StateStore> store;
};

using Report = nlohmann::json;

inline Report train_on(Device& device, TrainRequest request = {}) {
  Personal personal = device.personal();
  return Report::parse(train(personal, request));
}

template <class F>
Error error_of(F&& attempt) {
  try {
    attempt();
  } catch (const Error& error) {
    return error;
  }
  FAIL("no error");
  return Error(Kind::Internal, "", "", "", "");
}

}  // namespace fakes
