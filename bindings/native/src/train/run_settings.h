// SPDX-License-Identifier: Apache-2.0
// Which run a call of `train` goes on with or starts, and by which settings: all that is refused of them is refused here, before
// anything is done.
#pragma once

#include <optional>
#include <string>

#include "format/bundle/bundle.h"
#include "state/store.h"

namespace bespoke {

struct TrainRequest {
  std::string method;           // empty: that of the unfinished run, else the bundle's first; another one starts a new run
  int64_t run_steps = 0;        // length of a run that starts here; 0: by its settings. An unfinished run refuses another one than its own
  int64_t most_steps = 0;       // of this call; 0: to the end of the run
  std::optional<int64_t> seed;  // of a run that starts here; none: the bundle's
  std::string settings;         // JSON object of Training fields but `steps`, for a run that starts here; empty: none
  bool new_run = false;         // an unfinished run is replaced
};

struct ChosenRun {
  std::optional<Run> unfinished;  // the one that there is
  bool goes_on = false;           // with it; else it ends, and another one starts
  Method method;                  // its training: the settings of the run
};

// As the state keeps it of a run that starts: {"options": the method's, "training": the settings}.
std::string settings_json(const Method& method);

// The same of a run that trains nothing: its one step is the shared adapter after a round, which the gate judges. One that a killed process
// left is not gone on with.
std::string settings_of_shared(const Method& method, int64_t round);
bool judges_shared(const Run& run);

// ConfigError for what was asked, and where the bundle has other options of the method than the unfinished run; StateError where the
// unfinished run's settings are none that the bundle can run.
ChosenRun choose_run(const Manifest& manifest, StateStore& store, const TrainRequest& request);

}  // namespace bespoke
