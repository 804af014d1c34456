// SPDX-License-Identifier: Apache-2.0
// The rows of a bundle that show whether an adapter keeps the base model's behaviour: the base's answers to prompts of other kinds.
#pragma once

#include <memory>

#include "train/batches.h"

namespace bespoke {

struct BehaviourSample {
  std::unique_ptr<RowSource> rows;
  int64_t tokens = 0;  // without the first of a row
};

// Those that the gate looks at, by the rule for the user's (train/judged.h). Null rows where the bundle has none.
BehaviourSample behaviour_sample(Bundle& bundle);

}  // namespace bespoke
