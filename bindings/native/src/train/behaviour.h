// SPDX-License-Identifier: Apache-2.0
// The rows of a bundle that show whether an adapter keeps the base model's behaviour: the base's answers to prompts of other kinds.
#pragma once

#include <memory>

#include "train/batches.h"

namespace bespoke {

// All of them; none where the bundle has none. BundleError where they are no rows.
std::unique_ptr<RowSource> behaviour_rows(Bundle& bundle);

struct BehaviourSample {
  std::unique_ptr<RowSource> rows;
  int64_t tokens = 0;  // without the first of a row
};

// Those that the gate looks at, by the rule for the user's (train/judged.h). Null rows where the bundle has none.
BehaviourSample behaviour_sample(Bundle& bundle);

}  // namespace bespoke
