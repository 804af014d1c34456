// SPDX-License-Identifier: Apache-2.0
#include "train/run_writes.h"

#include <algorithm>
#include <cmath>

namespace bespoke {

int64_t steps_between_slots(const RunFiles& files, int64_t steps, std::optional<double> most_mb) {
  if (!most_mb || files.slot <= 0) return 1;
  const double in_any_case = static_cast<double>(files.slot + files.adapter * (files.judgements + 1));
  const double left = *most_mb * 1e6 - in_any_case;
  const double slots = std::clamp(std::floor(left / static_cast<double>(files.slot)), 0.0, static_cast<double>(steps));
  const auto parts = static_cast<int64_t>(slots) + 1;
  return (steps + parts - 1) / parts;
}

}  // namespace bespoke
