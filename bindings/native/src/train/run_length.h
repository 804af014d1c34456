// SPDX-License-Identifier: Apache-2.0
// The number of steps of a run whose settings name none: as many as read each row of the user's six times, within bounds. The rule and
// why it is so: sdk/bespoke/rules/run_length.py.
#pragma once

#include <cstdint>

#include "format/bundle/manifest.h"

namespace bespoke {

constexpr int64_t kEpochs = 6;
constexpr int64_t kLeastSteps = 300;
constexpr int64_t kMostSteps = 5000;

int64_t run_length(const Training& training, int64_t user_rows, int64_t general_rows);

}  // namespace bespoke
