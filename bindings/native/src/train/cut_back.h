// SPDX-License-Identifier: Apache-2.0
// Keeps less of what a run has learned, where all of it makes answers to other questions too much worse.
//
// B times a factor changes the model's weights by that factor less (Wortsman et al. 2022, Robust fine-tuning of zero-shot models, for
// whole weights). The loss on other answers rises about with the square of the factor, at most in proportion to it. So the factor is chosen
// by the square, and where that left a little too much, in proportion. It follows from the last measurement alone: a gate that is killed
// between two of them comes to the same adapter.
#pragma once

#include <vector>

#include "exec/memory_guard.h"
#include "exec/steps.h"

namespace bespoke {

constexpr int kMostCuts = 3;  // each writes an adapter: sdk/bespoke/rules/run_writes.py

// `excess`: by which share of the base's loss the new one is above it; more than `tolerance`. 0: no factor keeps it within.
double cut(double excess, double tolerance);

// Makes the B pieces of an adapter point to copies of them times a factor, as long as it lives. Throws Error where they have no room.
class ScaledAdapter {
 public:
  ScaledAdapter(std::vector<NamedTensor>& adapter, double factor, MemoryGuard& guard);

 private:
  std::vector<std::vector<float>> pieces_;
};

}  // namespace bespoke
