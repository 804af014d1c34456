// SPDX-License-Identifier: Apache-2.0
// The gate of a run that has ended: what it learned at its best step answers from now on, or is dropped.
#pragma once

#include <memory>

#include "train/report.h"
#include "train/training.h"

namespace bespoke {

// `machine` is dropped where answers are checked: the two do not take memory at the same time. Throws Abandoned where the call must end,
// and RowForgotten.
void judge_run(Personal& personal, std::unique_ptr<Steps>& machine, const Run& run, const Method& method, MemoryGuard& guard,
               TrainReport& report);

}  // namespace bespoke
