// SPDX-License-Identifier: Apache-2.0
// One call of `train`: continue a run, step, commit, and stop in a committed state whatever happens.
//
// A run is decided by its seed, settings and list of examples alone. Commits are timed, but nothing that is committed depends on
// when: a run killed at any instant and resumed ends with the same bits as one that was not.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "train/batches.h"
#include "train/best_step.h"
#include "exec/memory_guard.h"
#include "state/store.h"

namespace bespoke {

constexpr int64_t kSlotEvery = 200;    // steps between slots of a replayable method: bounds how much of the journal a resume replays
constexpr int64_t kDivergedAfter = 3;  // steps in a row whose loss is NaN or infinite

struct Trained {  // what a call of `train` has done so far
  int64_t steps = 0, tokens = 0, rejected = 0;
  std::vector<double> losses;
  std::vector<double> step_seconds;
  double longest_step_seconds = 0;
  double longest_commit_seconds = 0;
  std::vector<Footprint> step_peaks;  // columns at each step's highest reading; an abandoned last step included
};

// Steps one run on one machine. The caller holds the trainer's lock, and all that is handed in outlives it.
class Trainer {
 public:
  // Restores the state of the last commit; before the first, `start`.
  Trainer(Steps& machine, StateStore& store, const Run& run, const Training& training, BatchCursor& cursor, BestStepSearch& search,
          MemoryGuard& guard, const TensorSource& start);

  // At most `steps` more steps. What was done is committed when this returns or throws.
  Stopped train(int64_t steps);

  int64_t step() const { return position_.step; }  // steps of the run that are done
  const Trained& trained() const { return trained_; }

 private:
  Stopped loop(int64_t steps);
  void take_step();
  std::optional<Stopped> judge_step();  // the one that was just done, where it is to be judged; why the call must end then
  void note(const CursorState& cursor, const Outcome& outcome, double loss, bool rejected);
  Stopped leave(Stopped reason) { return commit() ? reason : Stopped::example_forgotten; }
  bool ended() { return store_.ended_because(run_.id).has_value(); }
  bool has_time_for_a_step() const;
  double learning_rate(int64_t step) const;
  bool commit_is_due() const;
  bool commit();  // makes all steps so far survive anything; false where the run has been ended meanwhile
  [[nodiscard]] bool write_slot();
  void restore(const TensorSource& start);

  Steps& machine_;
  StateStore& store_;
  const Run& run_;
  const Training& training_;
  BatchCursor& cursor_;
  BestStepSearch& search_;
  MemoryGuard& guard_;
  Control& control_;
  CursorState position_;
  Trained trained_;
  std::vector<Batch> batches_;
  std::vector<JournalRow> pending_;   // replayable: steps since the last commit
  std::vector<std::string> metrics_;  // else: their metrics
  int64_t bad_in_a_row_ = 0, committed_ = 0;
  int64_t slot_step_ = 0;  // of the newest slot, which is behind `committed_` where a journal follows it
  double state_bytes_ = 0;
  int64_t steps_between_slots_ = 1;  // that are written while the call goes on; one that ends writes one in any case
  bool between_steps_ = true;
  std::chrono::steady_clock::time_point last_commit_;
};

}  // namespace bespoke
