// SPDX-License-Identifier: Apache-2.0
// Sums in double over the batches that sdk/bespoke/reference/evaluate.py would make, in its order.
#include "train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "train/paired_gain.h"

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

// Known, or measured and kept. How many were right nobody asks then.
std::pair<double, double> remembered(Steps& machine, const Batch& batch, const AdapterView* adapter, KnownLosses& known) {
  if (const std::optional<double> sum = known.find(batch)) return {*sum, 0.0};
  const auto found = measured(machine, batch, adapter);
  known.keep(batch, found.first);
  return found;
}

// ---- parts of the user's rows, which the gate compares one by one ---------------------------------------------------------------

// Quantiles of the normal distribution, by how many runs that learned nothing may pass.
constexpr double kOneInTen = 1.2815515655446004, kOneInForty = 1.9599639845400545;

constexpr int64_t kLeastParts = 8;  // with fewer, Student's t asks for more than twice the standard error

// One row, trained on in the `part`-th of `parts` pieces alone, with as many of its trained tokens in each; none where that has none.
std::optional<TokenRow> part_of(const Row& row, int64_t part, int64_t parts) {
  const int64_t trained = std::count(row.mask.begin(), row.mask.end(), 1);
  const int64_t first = part * trained / parts, end = (part + 1) * trained / parts;
  if (first == end) return std::nullopt;
  TokenRow found;
  found.tokens = row.tokens;
  found.mask = row.mask;
  int64_t number = 0;
  for (uint8_t& one : found.mask)
    if (one) one = number >= first && number < end, number++;
  return found;
}

std::vector<Sums> sums_by_part(Steps& machine, const RowSource& rows, const AdapterView* adapter, const EvaluationRules& rules,
                               KnownLosses& known) {
  const auto count = static_cast<int64_t>(rows.size());
  const int64_t parts = count ? (kLeastParts + count - 1) / count : 0;
  std::vector<Sums> found;
  Row row;
  for (size_t number = 0; number < rows.size(); number++) {
    rows.read(number, row);
    for (int64_t part = 0; part < parts; part++) {
      std::optional<TokenRow> one = part_of(row, part, parts);
      if (!one) continue;
      std::vector<TokenRow> alone;
      alone.push_back(std::move(*one));
      found.push_back(sums_over(*given_rows(std::move(alone)), machine, rules,
                                [&](const Batch& batch) { return remembered(machine, batch, adapter, known); }));
    }
  }
  return found;
}

std::optional<double> mean_of(const std::vector<Sums>& parts) {
  Sums all;
  for (const Sums& part : parts) all.losses += part.losses, all.tokens += part.tokens;
  return all.tokens ? std::optional(all.losses / static_cast<double>(all.tokens)) : std::nullopt;
}

std::vector<Pair> paired(const std::vector<Sums>& before, const std::vector<Sums>& after) {
  std::vector<Pair> pairs;
  for (size_t i = 0; i < before.size(); i++) pairs.push_back({before[i].losses, after[i].losses, before[i].tokens});
  return pairs;
}

}  // namespace

std::optional<double> loss_on(Steps& machine, const RowSource& rows, const AdapterView* adapter, const EvaluationRules& rules,
                              KnownLosses& known) {
  const Sums sums = sums_over(rows, machine, rules, [&](const Batch& batch) { return remembered(machine, batch, adapter, known); });
  return sums.tokens ? std::optional(sums.losses / static_cast<double>(sums.tokens)) : std::nullopt;
}

std::optional<Evaluation> evaluate(Steps& machine, const RowSource& rows, const AdapterView* adapter, const EvaluationRules& rules,
                                   int64_t examples) {
  const auto all = static_cast<int64_t>(rows.size());
  int64_t done = 0;
  const Sums sums = sums_over(rows, machine, rules, [&](const Batch& batch) {
    machine.control().tell(Phase::judge, done, all);
    done += static_cast<int64_t>(batch.row_numbers.size());
    return measured(machine, batch, adapter);
  });
  if (sums.tokens == 0) return std::nullopt;
  const double mean = sums.losses / static_cast<double>(sums.tokens);
  const double perplexity = mean < 700 ? std::exp(mean) : std::numeric_limits<double>::infinity();
  return Evaluation{mean, perplexity, sums.correct / static_cast<double>(sums.tokens), sums.tokens, examples};
}

void judge(Steps& machine, const GateData& data, const Compared& answering, const Compared& base, KnownLosses& of_new, bool changed,
           Judgement& judgement) {
  judgement.judged_on = data.judged_on;
  judgement.examples = data.examples;
  judgement.tokens = data.tokens;
  judgement.of_tokens = data.of_tokens;
  const std::vector<Sums> before = sums_by_part(machine, *data.user, &answering.adapter, data.rules, answering.known);
  const auto& old = judgement.before = mean_of(before);
  const auto& old_general = judgement.general_before = loss_on(machine, *data.general, &answering.adapter, data.rules, answering.known);
  const std::vector<Sums> after = sums_by_part(machine, *data.user, nullptr, data.rules, of_new);
  const auto& now = judgement.after = mean_of(after);
  const auto& now_general = judgement.general_after = loss_on(machine, *data.general, nullptr, data.rules, of_new);
  auto &of_base = judgement.behaviour_base, &of_adapter = judgement.behaviour;
  if (data.behaviour) {
    judgement.behaviour_tokens = data.behaviour_tokens;
    of_base = loss_on(machine, *data.behaviour, &base.adapter, data.rules, base.known);
    of_adapter = loss_on(machine, *data.behaviour, nullptr, data.rules, of_new);
  }
  const std::vector<Pair> pairs = paired(before, after);
  const auto& least = judgement.least_gain = standard_error(pairs);
  const double normal_quantile = data.few ? kOneInTen : kOneInForty;
  if (least) *judgement.least_gain *= student_t(normal_quantile, static_cast<int64_t>(pairs.size()) - 1);
  const auto& old_loss = old ? old : old_general;  // that decides: the general one where the user has no example
  const auto& new_loss = old ? now : now_general;
  const double gain = old_loss && new_loss ? *old_loss - *new_loss : 0;
  if (old_loss) judgement.useful_gain = *old_loss * data.useful_gain;
  judgement.accepted = true;
  if (!changed || (!old && !old_general)) return judgement.refuse(Refused::nothing_to_judge_by);
  if (old && !(gain > 0)) return judgement.refuse(Refused::no_better);
  if (old && !(gain > least.value_or(0))) return judgement.refuse(Refused::luck);
  if (of_base && !(*of_adapter <= *of_base * (1 + data.general_tolerance))) return judgement.refuse(Refused::behaviour_worse);
  const double most = !old_general ? 0 : old ? *old_general * (1 + data.general_tolerance) : *old_general;
  const bool holds = !old_general || (now_general && (old ? *now_general <= most : *now_general < most));
  if (!holds) return judgement.refuse(Refused::general_worse);
  if (!(gain >= *judgement.useful_gain)) judgement.refuse(Refused::too_small);
}

}  // namespace bespoke
