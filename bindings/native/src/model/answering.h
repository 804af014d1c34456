// SPDX-License-Identifier: Apache-2.0
// What answers: one machine with one KV cache and the adapter that answers, for all sessions of a model in turn. So sessions hold words
// alone, and what all of them take together is what the bundle's estimate says. Made at the first use; gone before the model trains.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "exec/memory_guard.h"
#include "generate/cached_tokens.h"
#include "train/training.h"

namespace bespoke {

class Answering {
 public:
  Answering(Bundle& bundle, const PlanRecord& plan, StateStore& store, const Engine& engine, Control& control)
      : bundle_(bundle), plan_(plan), store_(store), guard_(control.limits()), machine_(bundle, plan, engine, guard_, control),
        cached_(machine_) {}

  const PlanRecord& plan() const { return plan_; }  // of the bundle's manifest

  // Logits of what follows `tokens`. An answer is of one adapter: its `version` is none before the first token, which sets it to the one
  // that answers then. `draft` is of the answer, null: nothing is guessed. Where that one has gone before the answer has ended, and is
  // not held any more, the one that answers now goes on.
  const std::vector<float>& next_logits(const std::vector<int64_t>& tokens, std::optional<int64_t>& version, const Draft& draft = nullptr);
  void end_answer() { adapter_.reset(); }  // its adapter is read no more, and can be overwritten where it was forgotten

 private:
  void use_adapter(std::optional<int64_t>& version);

  Bundle& bundle_;
  const PlanRecord& plan_;
  StateStore& store_;
  MemoryGuard guard_;
  Machine machine_;
  CachedTokens cached_;
  std::optional<Adapter> adapter_;         // while an answer is given
  std::optional<int64_t> cached_version_;  // of the adapter that the rows in the cache are of
};

// A machine for answers, as the gate uses one.
class GateAnswers : public AnswerSteps {
 public:
  GateAnswers(Bundle& bundle, const PlanRecord& plan, const Engine& engine, MemoryGuard& guard, Control& control)
      : machine_(bundle, plan, engine, guard, control) {}
  void read(const std::vector<int64_t>& tokens, const AdapterView& adapter) override {
    machine_.prefill(tokens, 0, adapter);
    position_ = static_cast<int64_t>(tokens.size());
  }
  std::vector<float> next(int64_t token, const AdapterView& adapter) override { return machine_.decode(token, position_++, adapter); }

 private:
  Machine machine_;
  int64_t position_ = 0;  // of the next token
};

}  // namespace bespoke
