// SPDX-License-Identifier: Apache-2.0
// constant, linear and cosine, each after a linear warm-up.
#include "train/schedule.h"

#include <algorithm>
#include <cmath>

#include "error.h"

namespace bespoke {

double learning_rate_at(int64_t step, double peak, Schedule schedule, int64_t warmup_steps, int64_t total_steps) {
  constexpr double kPi = 3.141592653589793;
  if (step < 1) throw Error(Kind::Config, "step", std::to_string(step), "1 or more", "Count the steps of a run from 1");
  if (step <= warmup_steps) return peak * static_cast<double>(step) / static_cast<double>(warmup_steps);
  const double progress =
      static_cast<double>(step - 1 - warmup_steps) / static_cast<double>(std::max<int64_t>(1, total_steps - warmup_steps));
  switch (schedule) {
    case Schedule::constant:
      break;
    case Schedule::linear:
      return peak * std::max(0.0, 1.0 - progress);
    case Schedule::cosine:
      return peak * 0.5 * (1.0 + std::cos(kPi * std::min(1.0, progress)));
  }
  return peak;
}

}  // namespace bespoke
