// SPDX-License-Identifier: Apache-2.0
#include "train/run_length.h"

#include <algorithm>
#include <cmath>

namespace bespoke {

int64_t run_length(const Training& training, int64_t user_rows, int64_t general_rows) {
  if (training.steps) return *training.steps;
  const double share = general_rows > 0 ? training.general_share : 0;
  if (share >= 1) return kLeastSteps;  // no row of the user's is read
  const double rows_a_step = static_cast<double>(training.batch_size * training.accumulation) * (1 - share);
  const double steps = std::ceil(static_cast<double>(kEpochs * user_rows) / rows_a_step);
  return static_cast<int64_t>(std::clamp(steps, static_cast<double>(kLeastSteps), static_cast<double>(kMostSteps)));
}

}  // namespace bespoke
