// SPDX-License-Identifier: Apache-2.0
// Sums in double over the batches that sdk/bespoke/reference/evaluate.py would make, in its order.
#include "train/evaluate.h"

#include <cmath>
#include <limits>

namespace bespoke {

namespace {

struct Sums {  // over the unmasked tokens of some rows
  double losses = 0, correct = 0;
  int64_t tokens = 0;
};

// `measure`: the sum of losses of a batch, and how many guesses were right.
template <class Measure>
Sums sums_over(const RowSource& rows, const Steps& machine, const EvaluationRules& rules, Measure measure) {
  EvaluationBatches batches(rows, rules.batch_size, machine.sequence_lengths(), rules.vocab_size);
  Sums sums;
  for (Batch batch; batches.next(batch);) {
    const auto [loss_sum, right] = measure(batch);
    sums.losses += loss_sum;
    sums.correct += right;
    sums.tokens += batch.tokens_trained;
  }
  return sums;
}

std::pair<double, double> measured(Steps& machine, const Batch& batch, const AdapterView* adapter) {
  machine.control().check();
  return machine.evaluate_batch(batch, adapter);
}

std::optional<double> loss_of(Steps& machine, const RowSource& rows, const AdapterView* adapter, const EvaluationRules& rules,
                              KnownLosses& known) {
  const Sums sums = sums_over(rows, machine, rules, [&](const Batch& batch) {
    if (const std::optional<double> sum = known.find(batch)) return std::pair(*sum, 0.0);  // nobody asks how many were right
    const auto found = measured(machine, batch, adapter);
    known.keep(batch, found.first);
    return found;
  });
  return sums.tokens ? std::optional(sums.losses / static_cast<double>(sums.tokens)) : std::nullopt;
}

}  // namespace

std::optional<Evaluation> evaluate(Steps& machine, const RowSource& rows, const AdapterView* adapter, const EvaluationRules& rules,
                                   int64_t examples) {
  const Sums sums = sums_over(rows, machine, rules, [&](const Batch& batch) { return measured(machine, batch, adapter); });
  if (sums.tokens == 0) return std::nullopt;
  const double mean = sums.losses / static_cast<double>(sums.tokens);
  const double perplexity = mean < 700 ? std::exp(mean) : std::numeric_limits<double>::infinity();
  return Evaluation{mean, perplexity, sums.correct / static_cast<double>(sums.tokens), sums.tokens, examples};
}

void judge(Steps& machine, const GateData& data, const AdapterView& answering, KnownLosses& of_answering, KnownLosses& of_new,
           bool changed, Judgement& judgement) {
  judgement.judged_on = data.judged_on;
  judgement.tokens = data.tokens;
  judgement.of_tokens = data.of_tokens;
  const auto& old = judgement.before = loss_of(machine, *data.user, &answering, data.rules, of_answering);
  const auto& old_general = judgement.general_before = loss_of(machine, *data.general, &answering, data.rules, of_answering);
  const auto& now = judgement.after = loss_of(machine, *data.user, nullptr, data.rules, of_new);
  const auto& now_general = judgement.general_after = loss_of(machine, *data.general, nullptr, data.rules, of_new);
  bool better = changed && (old || old_general);
  if (old) better = better && now && *now < *old;
  if (old_general && old) better = better && now_general && *now_general <= *old_general * (1 + data.general_tolerance);
  if (old_general && !old) better = better && now_general && *now_general < *old_general;
  judgement.accepted = better;
}

}  // namespace bespoke
