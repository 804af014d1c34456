// SPDX-License-Identifier: Apache-2.0
// What `bespoke train`, `evaluate` and `verify` do on a device, from a bundle and a state to a report.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "format/bundle/bundle.h"
#include "exec/memory_guard.h"
#include "train/run_settings.h"
#include "train/trainer.h"

namespace bespoke {

// A machine for a method, which outlives it. `scratch_path` empty: for answers only, nothing is kept on disk.
using MakeMachine = std::function<std::unique_ptr<Steps>(const Method& method, MemoryGuard& guard, const std::string& scratch_path)>;

// For a plan for answers, as the gate uses it.
using MakeAnswerSteps = std::function<std::unique_ptr<AnswerSteps>(const PlanRecord& plan, MemoryGuard& guard)>;

struct Personal {  // one bundle, one user's state and one call; all of it outlives what is done with it
  Bundle& bundle;
  StateStore& store;
  Control& control;
  MakeMachine make_machine;
  MakeAnswerSteps make_answer_steps;
};

// Starts a run, or continues the unfinished one; at the end the gate accepts or refuses. The report, as JSON.
//
// A call that must end does so in a committed state, and so does one that ends before its run: nothing is judged then, and `accepted` is
// null. Where the end comes within the gate, `stopped_because` says why, and the next call goes on with the gate.
// BudgetExceeded where going on would pass the limit (what was done is committed), StateLocked where another process trains.
std::string train(Personal& personal, const TrainRequest& request);

// Loss, perplexity and accuracy of the adapter that answers, as JSON: on the user's examples of a split ("validation" or "train"), on
// the bundle's behaviour rows ("behaviour"), with the base model's loss on them, or on rows of other examples, so many. DataError where
// there are none; Abandoned where the call must end.
std::string evaluate_split(Personal& personal, const std::string& split);
std::string evaluate_rows(Personal& personal, std::vector<TokenRow> rows, int64_t examples);

struct Adapter {  // in place: mapped from its file
  MappedTensors mapped;
  TensorSource tensors;
  int64_t version = 0;  // 0: the bundle's own, which changes nothing
};

// The newest accepted one, else the bundle's own.
Adapter answering_adapter(Bundle& bundle, StateStore& store);
std::optional<Adapter> adapter_of_version(Bundle& bundle, StateStore& store, int64_t version);  // none: it has gone

// The float32 tensors of a bundle's adapter, in place. BundleError where one is of another type.
TensorSource adapter_of(Bundle& bundle);

}  // namespace bespoke
