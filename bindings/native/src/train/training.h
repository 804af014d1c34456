// SPDX-License-Identifier: Apache-2.0
// What `bespoke train`, `evaluate` and `verify` do on a device, from a bundle and a state to a report: the logic of
// sdk/bespoke/personal_model.py, where it trains.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "format/bundle/bundle.h"
#include "exec/memory_guard.h"
#include "train/trainer.h"

namespace bespoke {

// A machine for a method, which outlives it. `scratch_path` empty: for answers only, nothing is kept on disk.
using MakeMachine = std::function<std::unique_ptr<Steps>(const Method& method, MemoryGuard& guard, const std::string& scratch_path)>;

struct Personal {  // one bundle, one user's state and one call; all of it outlives what is done with it
  Bundle& bundle;
  StateStore& store;
  Control& control;
  MakeMachine make_machine;
};

struct TrainRequest {
  std::string method;    // empty: that of the unfinished run, else the bundle's first; another one starts a new run
  int64_t steps = 0;     // at most so many more; 0: to the end of the run
  std::optional<int64_t> seed;  // of a run that starts here; none: the bundle's
  std::string settings;  // JSON object of Training fields, for a run that starts here; empty: none
};

// Starts a run, or continues the unfinished one; at the end the gate accepts or refuses. The report, as JSON.
//
// A call that must end does so in a committed state. Where that comes before or within the gate, the gate is left undecided: `accepted` is
// false, `stopped_because` says why it ended, and the next call judges.
// BudgetExceeded where going on would pass the limit (what was done is committed), StateLocked where another process trains.
std::string train(Personal& personal, const TrainRequest& request);

// Loss, perplexity and accuracy of the adapter that answers, on the user's examples of a split ("validation" or "train"), as JSON.
// DataError where there are none; Abandoned where the call must end.
std::string evaluate_examples(Personal& personal, const std::string& split);

// The float32 tensors of a bundle's adapter, in place. BundleError where one is of another type.
TensorSource adapter_of(Bundle& bundle);

}  // namespace bespoke
