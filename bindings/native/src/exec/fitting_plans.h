// SPDX-License-Identifier: Apache-2.0
// By which of a bundle's plans a call computes: those for the largest budget that have room within the limit.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "exec/control.h"
#include "format/bundle/manifest.h"

namespace bespoke {

// Null: by `whole`, the plans for the bundle's own budget. Where no plans have room, the smallest: what they take is then refused by name.
const SmallerPlans* fitting_plans(const std::vector<PlanRecord>& whole, const std::vector<SmallerPlans>& smaller, const Limits& limits);

struct Fitting {
  Method method;                         // with the plans that the limit leaves room for
  std::optional<uint64_t> memory_bytes;  // the budget that they were made for, where it is a smaller one
};
Fitting by_fitting_plans(const Method& method, const Limits& limits);

// GenerationError where the bundle has none.
const PlanRecord& plan_for_answers(const Manifest& manifest, const Limits& limits);

bool has_room(const PlanRecord& plan, const Limits& limits);

}  // namespace bespoke
