// SPDX-License-Identifier: Apache-2.0
// Steps, commits and resumes, in the order of sdk/bespoke/reference/train.py: what is in the state does not tell who wrote it.
#include "train/trainer.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "state/tensor_files.h"
#include "train/run_writes.h"
#include "train/schedule.h"
#include "train/tensor_views.h"
#include "state/stored_text.h"

namespace bespoke {

using Clock = std::chrono::steady_clock;

namespace {

double seconds_since(Clock::time_point moment) { return std::chrono::duration<double>(Clock::now() - moment).count(); }

// How many of the committed steps were rejected since the last one that was not.
int64_t rejected_last(StateStore& store, int64_t run) {
  int64_t count = 0;
  store.each_metrics(run, true, [&](const std::string& text) {
    const nlohmann::json metrics = nlohmann::json::parse(text, nullptr, false);
    const bool rejected = metrics.is_object() && metrics.value("rejected", nlohmann::json()) == true;
    count += rejected;
    return rejected && count < kDivergedAfter;
  });
  return count;
}

}  // namespace

Trainer::Trainer(Steps& machine, StateStore& store, const Run& run, const Training& training, BatchCursor& cursor, BestStepSearch& search,
                 MemoryGuard& guard, const TensorSource& start)
    : machine_(machine), store_(store), run_(run), training_(training), cursor_(cursor), search_(search), guard_(guard),
      control_(machine.control()) {
  bad_in_a_row_ = rejected_last(store, run.id);
  restore(start);
  committed_ = position_.step;
  for (const NamedTensor& tensor : machine.state()) state_bytes_ += static_cast<double>(tensor.elements()) * sizeof(float);
  const RunFiles files{tensor_file_bytes(state_tensors(machine.state())), store.adapter_bytes(), search.planned()};
  steps_between_slots_ = steps_between_slots(files, run.steps, training.write_mb_per_run);
  last_commit_ = Clock::now();
}

Stopped Trainer::train(int64_t steps) {
  if (bad_in_a_row_ >= kDivergedAfter) return leave(Stopped::diverged);  // killed between that commit and the end of the run
  try {
    return loop(steps);
  } catch (const Error& error) {
    // A commit that could not be made: the one before it is intact.
    if (error.kind == Kind::State || error.kind == Kind::StateLocked || error.kind == Kind::DiskFull) throw;
    if (between_steps_) commit();  // the budget: the steps before it are not lost
    throw;
  } catch (const RowForgotten&) {
    return Stopped::example_forgotten;
  } catch (...) {
    if (between_steps_) commit();
    throw;
  }
}

Stopped Trainer::loop(int64_t steps) {
  for (int64_t left = std::min(steps, run_.steps - step()); left > 0; left--) {
    if (control_.must_end()) return leave(control_.why());
    if (const auto reason = judge_step()) return leave(*reason);
    if (!has_time_for_a_step()) return leave(Stopped::deadline);
    if (ended()) return Stopped::example_forgotten;
    guard_.begin_step();
    const Clock::time_point began = Clock::now();
    bool abandoned = false;
    try {
      take_step();
    } catch (const Abandoned&) {
      abandoned = true;
    } catch (...) {
      guard_.observe();
      trained_.step_peaks.push_back(guard_.step_peak());
      throw;
    }
    guard_.observe();
    trained_.step_peaks.push_back(guard_.step_peak());
    if (abandoned) return leave(control_.why());
    trained_.step_seconds.push_back(seconds_since(began));
    trained_.longest_step_seconds = std::max(trained_.longest_step_seconds, trained_.step_seconds.back());
    control_.tell(Phase::step, step(), run_.steps, trained_.losses.back());
    if (bad_in_a_row_ >= kDivergedAfter) return leave(Stopped::diverged);
    if (commit_is_due() && !commit()) return Stopped::example_forgotten;
  }
  if (step() < run_.steps) return leave(Stopped::steps_done);
  return leave(judge_step().value_or(Stopped::finished));
}

std::optional<Stopped> Trainer::judge_step() {
  try {
    if (!search_.look(step())) return Stopped::example_forgotten;
  } catch (const Abandoned&) {
    return control_.why();
  }
  return step() < run_.steps && search_.given_up(step()) ? std::optional(Stopped::no_better) : std::nullopt;
}

void Trainer::take_step() {
  const CursorState following = cursor_.step(position_, batches_);
  const int64_t number = following.step;
  const Outcome outcome = machine_.train_step(batches_, learning_rate(number), number, static_cast<uint64_t>(run_.seed));
  const auto emitted = outcome.metrics.find("loss");
  const double loss = emitted == outcome.metrics.end() ? std::numeric_limits<double>::quiet_NaN() : emitted->second;
  const bool accepted = outcome.finite();
  between_steps_ = false;
  if (accepted) machine_.flip();
  position_ = following;
  bad_in_a_row_ = accepted ? 0 : bad_in_a_row_ + 1;
  note(following, outcome, loss, !accepted);
  between_steps_ = true;
  trained_.steps++;
  for (const Batch& batch : batches_) trained_.tokens += batch.tokens_trained;
  trained_.losses.push_back(loss);
  trained_.rejected += !accepted;
}

void Trainer::note(const CursorState& cursor, const Outcome& outcome, double loss, bool rejected) {
  std::string metrics = step_metrics_json(cursor.step, loss, rejected);
  if (machine_.replayable())
    pending_.push_back(
        {cursor.step, cursor_json(cursor), rejected ? std::vector<float>() : outcome.recorded, rejected, std::move(metrics)});
  else
    metrics_.push_back(std::move(metrics));
}

// A step that the deadline would break off is not begun: as long as the longest one so far, and a commit.
bool Trainer::has_time_for_a_step() const { return control_.has_time_for(trained_.longest_step_seconds + trained_.longest_commit_seconds); }

double Trainer::learning_rate(int64_t step) const {
  return learning_rate_at(step, training_.learning_rate, training_.schedule, training_.warmup_steps, run_.steps);
}

// ---- commits -----------------------------------------------------------------------------------------------------------

bool Trainer::commit_is_due() const {
  const double elapsed = seconds_since(last_commit_);
  if (machine_.replayable()) return elapsed >= training_.commit_seconds || step() - slot_step_ >= kSlotEvery;
  const double least_seconds = std::max(training_.commit_seconds, state_bytes_ / (training_.write_mb_per_second * 1e6));
  return elapsed >= least_seconds && step() - slot_step_ >= steps_between_slots_;
}

bool Trainer::commit() {
  last_commit_ = Clock::now();
  if (step() == committed_) return !ended();
  control_.tell(Phase::commit, step(), run_.steps);
  bool done;
  if (machine_.replayable()) {
    done = store_.append_journal(run_.id, pending_);
    pending_.clear();  // in the journal, even where the slot below finds the disk full
    if (done && step() - slot_step_ >= kSlotEvery) done = write_slot();
  } else {
    done = write_slot();
  }
  if (done) {
    metrics_.clear();
    committed_ = step();
  }
  trained_.longest_commit_seconds = std::max(trained_.longest_commit_seconds, seconds_since(last_commit_));
  return done;
}

bool Trainer::write_slot() {
  const std::vector<NamedTensor> state = machine_.state();
  const bool done = store_.commit_step(run_.id, step(), cursor_json(position_), state_tensors(state), metrics_);
  slot_step_ = step();
  return done;
}

// ---- resuming ----------------------------------------------------------------------------------------------------------

// State and position of the last commit: a slot, then the journal after it.
void Trainer::restore(const TensorSource& start) {
  const std::string subject = "cursor of run " + std::to_string(run_.id);
  {
    const std::vector<NamedTensor> kept = machine_.state();
    const std::optional<Slot> slot = store_.latest_slot(run_.id, state_tensors(kept));
    machine_.fill(slot ? source_of(slot->tensors) : start);
    if (slot) position_ = cursor_from_json(slot->cursor, subject);
    slot_step_ = position_.step;
  }
  if (!machine_.replayable()) return;
  while (const std::optional<JournalRow> row = store_.next_journal_row(run_.id, position_.step)) {
    if (!row->rejected) machine_.replay_step(row->values, learning_rate(row->step), row->step, static_cast<uint64_t>(run_.seed));
    const CursorState next = cursor_from_json(row->cursor, subject);
    if (next.step <= position_.step)
      throw Error(Kind::State, subject, "step " + std::to_string(next.step) + " after " + std::to_string(position_.step),
                  "steps that count up", "The state is damaged; abandon the run");
    position_ = next;
  }
}

}  // namespace bespoke
