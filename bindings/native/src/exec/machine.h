// SPDX-License-Identifier: Apache-2.0
// A method of a bundle brought to life: programs, weights, buffers, one interpreter a sequence length.
#pragma once

#include <memory>

#include "exec/interpreter.h"

namespace bespoke {

class Machine : public Steps {
 public:
  // `scratch_path` empty: for answers only, nothing is kept on disk.
  Machine(Bundle& bundle, const Method& method, const bespoke_engine& engine, MemoryGuard& guard, Control& control,
          const std::string& scratch_path);
  // The same with plans that are verified, each by itself; how they fit together is checked here.
  Machine(Bundle& bundle, const Method& method, std::vector<Plan> plans, const bespoke_engine& engine, MemoryGuard& guard,
          Control& control, const std::string& scratch_path);

  Outcome train_step(const std::vector<Batch>& batches, double learning_rate, int64_t step, uint64_t seed) override;
  void replay_step(const std::vector<float>& recorded, double learning_rate, int64_t step, uint64_t seed) override;
  std::pair<double, double> evaluate_batch(const Batch& batch, const AdapterView* adapter) override;
  void flip() override { buffers_->flip(); }
  void fill(const TensorSource& tensors) override;

  std::vector<NamedTensor> state() const override;
  std::vector<NamedTensor> adapter() const override;
  bool accumulates() const override { return method_.training.accumulates(); }
  bool replayable() const override { return method_.replayable; }
  std::vector<int64_t> sequence_lengths() const override;
  Control& control() const override { return control_; }
  std::map<std::string, double> seconds_by_stage() const override;
  double longest_call_seconds() const override { return spent_.longest; }

  std::vector<NamedTensor> following() const override;
  std::vector<NamedTensor> sums() const override;
  std::vector<float> next_token_logits(const std::vector<int64_t>& prompt, int64_t length, const AdapterView& adapter) override;

  Buffers& buffers() { return *buffers_; }  // for tests, which look at what lies around values

 private:
  // Opens the program for which the engine keeps most, before anything else takes memory: what grows later is there twice meanwhile.
  void reserve(MemoryGuard& guard);
  Bindings bindings(const Batch* batch, std::map<std::string, double> scalars) const;
  std::map<std::string, double> scalars(double learning_rate, int64_t step, int64_t batch_tokens) const;

  const Method& method_;
  Control& control_;
  Spent spent_;
  std::vector<Plan> plans_;  // shortest sequence length first
  Programs programs_;
  std::unique_ptr<Buffers> buffers_;
  std::map<int64_t, Interpreter> interpreters_;
};

}  // namespace bespoke
