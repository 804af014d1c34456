// SPDX-License-Identifier: Apache-2.0
// What training and evaluation report, as JSON: the fields of sdk/bespoke/rules/report.py, whose names stand in bindings/schema. A
// field that the SDK has and the core does not fill does not compile.
// A number that is not finite is null: JSON has no word for it.
#pragma once

#include <map>
#include <string>

#include "train/evaluate.h"
#include "exec/memory_guard.h"
#include "train/trainer.h"

namespace bespoke {

struct MemoryReport {
  int64_t idle_bytes = 0;  // what the process held before, where a limit counts what is added to it
  int64_t estimate_bytes = 0, peak_bytes = 0;
  std::optional<int64_t> planned_for_bytes, limit_bytes;
  int64_t mapped_dirty_bytes = 0, file_bytes = 0;
};

struct TrainReport {
  std::string method;
  std::string trains;  // of the adapter: "both" factors, or "B"
  int64_t run = 0, total_steps = 0;
  std::vector<JudgedStep> judgements;  // of the run, to choose its best step
  std::optional<int64_t> best_step;    // of those judged so far
  Judgement judgement;
  Stopped stopped_because = Stopped::steps_done;
  MemoryReport memory;
  Storage storage;                // within this call
  int64_t run_bytes_written = 0;  // by the run so far, to tensor files
  double seconds = 0;
  std::map<std::string, double> seconds_by_stage;  // of the steps
  double longest_call_seconds = 0;                 // of all calls: with a commit, what a stop may have to wait for
};

std::string report_json(const TrainReport& report, const Trained& trained);
std::string report_json(const Evaluation& evaluation);

}  // namespace bespoke
