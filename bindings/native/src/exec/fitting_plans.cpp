// SPDX-License-Identifier: Apache-2.0
#include "exec/fitting_plans.h"

#include "error.h"

namespace bespoke {

const SmallerPlans* fitting_plans(const std::vector<PlanRecord>& whole, const std::vector<SmallerPlans>& smaller, const Limits& limits) {
  const int64_t limit = limits.memory_bytes;
  const auto has_room = [&](const std::vector<PlanRecord>& plans) {
    return limit < 0 || limits.idle_bytes + static_cast<int64_t>(peak_of(plans)) <= limit;
  };
  if (smaller.empty() || has_room(whole)) return nullptr;
  for (const SmallerPlans& one : smaller)
    if (has_room(one.plans)) return &one;
  return &smaller.back();
}

const PlanRecord& plan_for_answers(const Manifest& manifest, const Limits& limits) {
  if (!manifest.generation)
    throw Error(Kind::Generation, "the bundle", "no plan for answers: it was built before there were any, or by another program",
                "a bundle of format 1.2 or later", "Build it again");
  const SmallerPlans* smaller = fitting_plans({*manifest.generation}, manifest.smaller_generation, limits);
  return smaller ? smaller->plans.front() : *manifest.generation;
}

}  // namespace bespoke
