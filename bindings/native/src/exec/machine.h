// SPDX-License-Identifier: Apache-2.0
// Plans of a bundle brought to life, those of a method or the one for answers: programs, weights, buffers, one interpreter a plan.
#pragma once

#include <memory>

#include "exec/interpreter.h"
#include "exec/thread_choice.h"

namespace bespoke {

// A direction of a round of federated learning: c z_j + c' G_j (sdk/bespoke/methods/federated.py).
struct Direction {
  uint64_t seed;  // of the round's noise
  uint32_t round;
  int64_t number;            // j
  float c, c_guidance;       // to measure along it, or to step by
  const Received& received;  // the guidance that the round brought
};

class Machine : public Steps {
 public:
  // Of a method. `scratch_path` empty: to evaluate only, nothing is kept on disk.
  Machine(Bundle& bundle, const Method& method, const Engine& engine, MemoryGuard& guard, Control& control,
          const std::string& scratch_path);
  // Of a plan for answers: `prefill` and `decode`, and no step.
  Machine(Bundle& bundle, const PlanRecord& plan, const Engine& engine, MemoryGuard& guard, Control& control);
  // The same with plans that are verified, each by itself; how they fit is checked here. Of a method, or of `answers`, which is null then.
  Machine(Bundle& bundle, const Method* method, const PlanRecord* answers, std::vector<Plan> plans, const Engine& engine,
          MemoryGuard& guard, Control& control, const std::string& scratch_path);
  ~Machine() override { memory_.settle(); }

  Outcome train_step(const std::vector<Batch>& batches, double learning_rate, int64_t step, uint64_t seed) override;
  void replay_step(const std::vector<float>& recorded, double learning_rate, int64_t step, uint64_t seed) override;
  std::pair<double, double> evaluate_batch(const Batch& batch, const AdapterView* adapter) override;
  void flip() override;
  void fill(const TensorSource& tensors) override;

  std::vector<NamedTensor> state() const override;
  std::vector<NamedTensor> adapter() override;
  bool accumulates() const override { return method_->training.accumulates(); }
  bool replayable() const override { return method_->replayable; }
  bool learns_pairs() const override;
  std::vector<int64_t> sequence_lengths() const override;
  Control& control() const override { return control_; }
  std::map<std::string, double> seconds_by_stage() const override;
  double longest_call_seconds() const override { return spent_.longest; }

  std::vector<NamedTensor> following() const override;
  std::vector<NamedTensor> sums() const override;

  // Federated learning. What the loss of these batches tells of a direction, in the plan's own numbers. A method whose plan projects
  // measures once a round, and then projects on each direction. Throws Abandoned, Error.
  bool projects() const;
  std::vector<float> measure(const std::vector<Batch>& batches, const Direction& direction);
  std::vector<float> project(const Direction& direction);
  // The step along it, flipped: theta - c z_j - c' G_j.
  void step_along(const Direction& direction);

  // Tokens from `position` on go into the KV cache in chunks; the last one is padded where the cache has room for it, else it goes
  // token by token. What answers keep of a prompt may be rounded. Throws Abandoned, Error.
  void prefill(const std::vector<int64_t>& tokens, int64_t position, const AdapterView& adapter,
               kernels::Precision precision = kernels::Precision::Rounded);
  // One token goes into the KV cache: the logits of the next. They are the machine's, and valid until its next call, as all logits are.
  const std::vector<float>& decode(int64_t token, int64_t position, const AdapterView& adapter);
  // Up to `rows` tokens go into the KV cache in one run: the logits of what follows the first. Fewer are padded, and what is padded is
  // written over by what follows. The logits of what follows token `row` of them can be asked for until something else runs.
  const std::vector<float>& decode_rows(std::vector<int64_t> tokens, int64_t position, const AdapterView& adapter);
  const std::vector<float>& row_logits(int64_t row);
  int64_t rows() const { return rows_; }  // 0: the plan has no section for that
  bool has_room_for_rows(int64_t position) const { return rows_ && position + rows_ <= context_length_; }
  // Of the token after `prompt`; nothing stays in the cache.
  std::vector<float> next_token_logits(const std::vector<int64_t>& prompt, const AdapterView& adapter, kernels::Precision precision);
  int64_t chunk() const { return plans_.front().sequence_length; }  // tokens that `prefill` takes at a time

  Buffers& buffers() { return *buffers_; }  // for tests, which look at what lies around values

 private:
  // Opens the program for which the engine keeps most, before anything else takes memory: what grows later is there twice meanwhile.
  void reserve(MemoryGuard& guard);
  // Runs the section that makes a step of the batch, with as many threads as were chosen for its length, and times it.
  Outcome run_step(const Batch& batch, const Bindings& with);
  // Gives the engine's pool as many threads as steps use: all of them while some number is tried.
  void resize_pool();
  double seconds_of_calls() const;
  Bindings bindings(const Batch* batch, std::map<std::string, double> scalars) const;
  std::map<std::string, double> scalars(double learning_rate, int64_t step, int64_t batch_tokens) const;
  // Runs section `finish` on the state as it is, unless it has been; false where the method has none.
  bool finish();
  void run_prompt(Section section, const std::vector<int64_t>& tokens, int64_t position, const AdapterView& adapter);

  const Method* method_;  // null: of the plan for answers
  Control& control_;
  const int64_t context_length_;
  Spent spent_;
  std::vector<Plan> plans_;  // shortest sequence length first
  const int64_t rows_;       // that `decode_rows` takes
  std::vector<float> logits_;
  EngineMemory memory_;
  std::unique_ptr<Buffers> buffers_;  // with the workspace of the programs, which go first
  Programs programs_;
  std::map<int64_t, Interpreter> interpreters_;
  std::map<int64_t, ThreadChoice> choices_;  // as interpreters, by sequence length: steps of one length are of equal work
  int32_t all_threads_ = 1, pool_ = 1;       // that the engine has, and that its pool was asked to have
  bool finished_ = false;                    // of the current state
};

}  // namespace bespoke
