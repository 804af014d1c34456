// SPDX-License-Identifier: Apache-2.0
// Loss, perplexity and next-token accuracy of an adapter on rows of tokens, and the gate that accepts or refuses one.
#pragma once

#include <optional>

#include "train/batches.h"
#include "train/checked_answers.h"

namespace bespoke {

struct Evaluation {  // means over the unmasked tokens of some examples
  double loss;       // nats per token
  double perplexity;
  double accuracy;  // share of tokens that the most likely next token predicts
  int64_t tokens, examples;
  std::optional<double> base_loss = std::nullopt;  // of the base model, where its own answers are looked at
  static constexpr const char* runtime = "core";
};

struct EvaluationRules {
  int64_t batch_size, vocab_size;
};

// None where there are no rows. `adapter` null: the machine's current one. Throws Abandoned where a stop is asked for: it is looked
// for before each batch, and by the machine within one.
std::optional<Evaluation> evaluate(Steps& machine, const RowSource& rows, const AdapterView* adapter, const EvaluationRules& rules,
                                   int64_t examples);

// Losses of the adapter that answers now and of the new one, on the same examples, and what follows.
struct Judgement {
  std::optional<JudgedOn> judged_on;
  std::optional<double> before, after, general_before, general_after;
  std::optional<double> least_gain;                 // of the user's loss, that is not luck (train/paired_gain.h)
  std::optional<double> useful_gain;                // of the loss that decides, to be of use
  int64_t examples = 0;                             // of the user's, that the rows are of
  int64_t tokens = 0, of_tokens = 0;                // of the user's rows: looked at, and in all of them; without the first of a row
  std::optional<double> behaviour_base, behaviour;  // of the base model and of the new adapter, on the behaviour rows
  int64_t behaviour_tokens = 0;                     // of these rows, without the first of a row
  CheckedAnswers answers;
  std::optional<double> scale;   // of what was learned, that is left; none: all of it
  std::optional<bool> accepted;  // none: not judged, or not to the end
  std::optional<Refused> refused_because;

  void refuse(Refused why) { accepted = false, refused_because = why; }
};

// Where the sums of losses of one adapter stand that were measured before, batch by batch. So a gate that a deadline cuts short goes on
// where it was, and the adapter that answers is measured once.
class KnownLosses {
 public:
  virtual ~KnownLosses() = default;
  virtual std::optional<double> find(const Batch& batch) = 0;
  virtual void keep(const Batch& batch, double loss_sum) = 0;
};

// Nats a token of `rows`; none where there are none. Throws as `evaluate`.
std::optional<double> loss_on(Steps& machine, const RowSource& rows, const AdapterView* adapter, const EvaluationRules& rules,
                              KnownLosses& known);

// Rows that the gate looks at; `judged_on` says what `user` is, `tokens` what it was drawn to be and from how many.
struct GateData {
  std::optional<JudgedOn> judged_on;
  std::unique_ptr<RowSource> user, general;
  std::unique_ptr<RowSource> behaviour;  // null: the bundle has none
  int64_t examples = 0, tokens = 0, of_tokens = 0, behaviour_tokens = 0;
  bool few = false;                               // of the user's examples are held out: what they can show is asked for
  double general_tolerance = 0, useful_gain = 0;  // shares of the loss before
  EvaluationRules rules{};
};

// An adapter that the new one is compared with, and what is known of it.
struct Compared {
  const AdapterView& adapter;
  KnownLosses& known;
};

// Measures the adapter that answers now, then the machine's. Accepted if it has `changed`, the user's loss is better by more than luck
// would make it and by enough to be of use, and the general one not worse than the tolerance. The loss on the behaviour rows is compared
// with that of the `base` model, never with the adapter that answers: so accepted runs, however many, share one tolerance. What is absent
// is left out; without rows of the user the general loss has to be better by enough to be of use. The user's rows are looked at one by one,
// so that their gains can be compared; fewer than eight are cut into parts, with as many trained tokens in each. More than luck is more
// than a quantile of Student's t times the standard error, which adapters that are equally good reach in one of forty, or, where few are
// held out, in one of ten. Throws Abandoned where the call must end; `judgement` then has what was measured.
void judge(Steps& machine, const GateData& data, const Compared& answering, const Compared& base, KnownLosses& of_new, bool changed,
           Judgement& judgement);

}  // namespace bespoke
