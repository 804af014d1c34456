// SPDX-License-Identifier: Apache-2.0
// The learning rate of each step: the formulas of sdk/bespoke/rules/schedule.py, operation by operation.
#pragma once

#include "enums.h"

namespace bespoke {

// Of `step`, counted from 1, in a run of `total_steps`. ConfigError for a step below 1.
double learning_rate_at(int64_t step, double peak, Schedule schedule, int64_t warmup_steps, int64_t total_steps);

}  // namespace bespoke
