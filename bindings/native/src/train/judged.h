// SPDX-License-Identifier: Apache-2.0
// Which of the user's rows the gate looks at: all while they are few, else a sample that follows from their lengths alone. The rule,
// and its vectors, are those of sdk/bespoke/rules/judged.py.
#pragma once

#include <vector>

#include "state/records.h"

namespace bespoke {

constexpr int64_t JUDGED_POSITIONS = 4096;
constexpr int64_t kFewHeldOut = 10;  // examples: with fewer held out, the gate asks for less

std::vector<RowPlace> judged_rows(const std::vector<RowPlace>& rows);

int64_t examples_of(const std::vector<RowPlace>& rows);  // how many examples they are of

// Tokens of the rows but their first ones, which nothing predicts: what looking at them costs.
int64_t predicted(const std::vector<RowPlace>& rows);

}  // namespace bespoke
