// SPDX-License-Identifier: Apache-2.0
// A call that trains or judges with a machine of its own, from its beginning to its report.
#pragma once

#include <chrono>

#include "exec/fitting_plans.h"
#include "train/report.h"
#include "train/training.h"

namespace bespoke {

class ReportedCall {
 public:
  ReportedCall();  // begins it

  // The report of a run, with what is known before its machine is made.
  TrainReport begun(const Personal& personal, const Run& run, const Fitting& fitting) const;

  // What the call took, as JSON with all of the report. `machine` null: it has gone.
  std::string finished(TrainReport& report, const Trained& trained, Personal& personal, MemoryGuard& guard, const Steps* machine) const;

 private:
  const std::chrono::steady_clock::time_point began_;
  const Storage storage_;
};

// BudgetExceeded where the plans of a method take more than the limit has room for.
void refuse_what_cannot_fit(const Fitting& fitting, const Limits& limits, MemoryGuard& guard);

}  // namespace bespoke
