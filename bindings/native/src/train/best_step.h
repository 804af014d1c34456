// SPDX-License-Identifier: Apache-2.0
// The best step of a run, by its loss on held-out rows that the gate does not see.
//
// At which steps a run is judged, and on which rows, follows from its length, its examples and the bundle's plans: where a call ends, or
// is killed, changes neither the steps nor what they are worth.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "format/bundle/manifest.h"
#include "state/store.h"
#include "train/evaluate.h"

namespace bespoke {

constexpr int64_t kTenths = 10;          // a run is judged at multiples of a tenth of its steps, the last one among them
constexpr double kJudgingShare = 0.05;   // most of the work of its steps that judging may take
constexpr int64_t kLeastJudgements = 5;  // the rows are chosen for so many, where a single row allows as many
constexpr int64_t kPatience = 3;         // judgements in a row without a better one, which end the run

struct Choosing {
  std::vector<RowPlace> rows;
  std::vector<int64_t> steps;  // ascending. None: too short a run, or nothing is held out for it; its last step counts
};

// `held_out`: rows that may choose, the first ones first; `method` with the run's own training, `user` and `general` what it trains on.
Choosing choosing_of(const Method& method, int64_t run_steps, const std::vector<RowPlace>& held_out, const RowSource& user,
                     const RowSource& general);

// Of one run; all that is handed in outlives it.
class BestStepSearch {
 public:
  BestStepSearch(Steps& machine, StateStore& store, const Run& run, Choosing choosing, EvaluationRules rules);

  // Judges the machine's adapter if `step`, which was just done, is to be judged and has not been. False: the run has ended meanwhile.
  // Throws Abandoned, with what was measured remembered, and RowForgotten.
  bool look(int64_t step);
  bool given_up(int64_t step) const;  // of the judgements up to this step the last kPatience were no better than one before
  int64_t planned() const { return static_cast<int64_t>(steps_.size()); }  // judgements of the whole run
  const std::vector<JudgedStep>& judged() const { return judged_; }
  std::optional<int64_t> best() const;  // of those judged so far

 private:
  Steps& machine_;
  StateStore& store_;
  int64_t run_, run_steps_;
  std::vector<int64_t> steps_;
  std::unique_ptr<RowSource> rows_;
  EvaluationRules rules_;
  std::vector<JudgedStep> judged_;  // in the order of steps
};

}  // namespace bespoke
