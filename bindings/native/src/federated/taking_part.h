// SPDX-License-Identifier: Apache-2.0
// Follows the rounds of a federation that have ended, measures for the one that is open, and lets the shared adapter answer.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "exec/machine.h"
#include "train/training.h"

namespace bespoke {

using MakeFederatedMachine =
    std::function<std::unique_ptr<Machine>(const Method& method, MemoryGuard& guard, const std::string& scratch_path)>;

struct FederationReport {  // sdk/bespoke/rules/records.py
  int64_t round = 0, followed = 0;
  std::optional<int64_t> measured;
  int64_t numbers = 0;
  std::optional<NotMeasured> not_measured_because;
  bool differs = false;
  double seconds = 0;
};

// Works through the document that the server has sent. Files that it needs may come while this computes: it waits for them until the call
// must end. Throws Abandoned then. Rounds that were followed are kept; numbers are in the outbox, or not measured. ConfigError where the
// bundle has no federation or the user has not joined it, StateLocked where somebody trains.
FederationReport take_part(Personal& personal, const MakeFederatedMachine& make_machine);

// Judges the shared adapter as it judges what was learned from the user alone: it answers from then on, or does not. The report of a run,
// as JSON. StateError before the first round and where a run is unfinished.
std::string adopt_shared(Personal& personal);

// The record of a bundle whose federation the user has joined. ConfigError otherwise.
const FederationRecord& federation_of(const Manifest& manifest);
const FederationRecord& joined_federation(const Manifest& manifest, StateStore& store);

}  // namespace bespoke
