// SPDX-License-Identifier: Apache-2.0
// Enumerations that the SDK has too, and what their values are called in plans, manifests, golden vectors, settings and reports.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>

namespace bespoke {

#include "../../schema/enums.inc"

template <typename Enum, typename = decltype(names_of(Enum{}))>
const char* name_of(Enum value) {
  return names_of(value)[static_cast<size_t>(value)];
}

template <typename Enum>
std::optional<Enum> value_named(const std::string& name) {
  const auto& names = names_of(Enum{});
  const auto found = std::find(std::begin(names), std::end(names), name);
  return found == std::end(names) ? std::nullopt : std::optional(static_cast<Enum>(found - std::begin(names)));
}

}  // namespace bespoke
