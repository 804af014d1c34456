// SPDX-License-Identifier: Apache-2.0
// Sums in double over the batches that sdk/bespoke/runtime/evaluate.py would make, in its order.
#include "train/evaluate.h"

#include <cmath>
#include <limits>

namespace bespoke {

std::optional<Evaluation> evaluate(Steps& machine, const RowSource& rows, const AdapterView* adapter, const EvaluationRules& rules,
                                   int64_t examples) {
  EvaluationBatches batches(rows, rules.batch_size, machine.sequence_lengths(), rules.vocab_size);
  double losses = 0, correct = 0;
  int64_t tokens = 0;
  for (Batch batch; batches.next(batch);) {
    machine.control().check();
    const auto [loss_sum, right] = machine.evaluate_batch(batch, adapter);
    losses += loss_sum;
    correct += right;
    tokens += batch.tokens_trained;
  }
  if (tokens == 0) return std::nullopt;
  const double mean = losses / static_cast<double>(tokens);
  const double perplexity = mean < 700 ? std::exp(mean) : std::numeric_limits<double>::infinity();
  return Evaluation{mean, perplexity, correct / static_cast<double>(tokens), tokens, examples};
}

namespace {

std::optional<double> loss_of(Steps& machine, const RowSource& rows, const AdapterView* adapter, const EvaluationRules& rules) {
  const auto found = evaluate(machine, rows, adapter, rules, static_cast<int64_t>(rows.size()));
  return found ? std::optional(found->loss) : std::nullopt;
}

}  // namespace

Judgement judge_before(Steps& machine, const GateData& data, const AdapterView& answering) {
  Judgement judgement;
  judgement.judged_on = data.judged_on;
  judgement.tokens = data.tokens;
  judgement.of_tokens = data.of_tokens;
  judgement.before = loss_of(machine, *data.user, &answering, data.rules);
  judgement.general_before = loss_of(machine, *data.general, &answering, data.rules);
  return judgement;
}

void judge_after(Steps& machine, const GateData& data, Judgement& judgement, bool changed) {
  const auto &old = judgement.before, &old_general = judgement.general_before;
  // Both before either is kept: a gate that was stopped half way has seen nothing.
  const auto now = loss_of(machine, *data.user, nullptr, data.rules);
  const auto now_general = loss_of(machine, *data.general, nullptr, data.rules);
  judgement.after = now;
  judgement.general_after = now_general;
  bool better = changed && (old || old_general);
  if (old) better = better && now && *now < *old;
  if (old_general && old) better = better && now_general && *now_general <= *old_general * (1 + data.general_tolerance);
  if (old_general && !old) better = better && now_general && *now_general < *old_general;
  judgement.accepted = better;
}

}  // namespace bespoke
