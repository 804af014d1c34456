// SPDX-License-Identifier: Apache-2.0
#include "exec/fitting_plans.h"

#include "error.h"

namespace bespoke {

namespace {

bool has_room_for(uint64_t peak_bytes, const Limits& limits) {
  const int64_t most = limits.added_bytes;
  return most < 0 || static_cast<int64_t>(peak_bytes) <= most;
}

}  // namespace

bool has_room(const PlanRecord& plan, const Limits& limits) { return has_room_for(plan.estimate.peak_bytes, limits); }

const SmallerPlans* fitting_plans(const std::vector<PlanRecord>& whole, const std::vector<SmallerPlans>& smaller, const Limits& limits) {
  if (smaller.empty() || has_room_for(peak_of(whole), limits)) return nullptr;
  for (const SmallerPlans& one : smaller)
    if (has_room_for(peak_of(one.plans), limits)) return &one;
  return &smaller.back();
}

Fitting by_fitting_plans(const Method& method, const Limits& limits) {
  const SmallerPlans* smaller = fitting_plans(method.plans, method.smaller, limits);
  return smaller ? Fitting{method.by(*smaller), smaller->memory_bytes} : Fitting{method, std::nullopt};
}

const PlanRecord& plan_for_answers(const Manifest& manifest, const Limits& limits) {
  if (!manifest.generation)
    throw Error(Kind::Generation, "the bundle", "no plan for answers: it was built before there were any, or by another program",
                "a bundle of format 1.2 or later", "Build it again");
  const SmallerPlans* smaller = fitting_plans({*manifest.generation}, manifest.smaller_generation, limits);
  return smaller ? smaller->plans.front() : *manifest.generation;
}

}  // namespace bespoke
