// SPDX-License-Identifier: Apache-2.0
// What a run writes to the user's storage, which wears: how far apart the slots are that it writes while it goes on.
#pragma once

#include <cstdint>
#include <optional>

namespace bespoke {

struct RunFiles {  // of a run, in bytes
  int64_t slot = 0, adapter = 0;
  int64_t judgements = 0;  // planned: each may be the best so far, whose adapter is kept
};

// Steps. A run writes its last slot, the adapters of its best steps and the accepted one in any case. Of `most_mb` (10^6 bytes; none: no
// limit) the rest is for slots in between, at equal distances, so that a kill loses at most the steps of one distance.
int64_t steps_between_slots(const RunFiles& files, int64_t steps, std::optional<double> most_mb);

}  // namespace bespoke
