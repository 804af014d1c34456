// SPDX-License-Identifier: Apache-2.0
// Engines in libraries of their own (engines/module.h), which lie where the core's does.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "bespoke.h"

namespace bespoke {

// Opens the library of the engine `name` and fills `engine`. Where it cannot, the event that says so.
std::optional<nlohmann::json> open_engine(const std::string& name, bespoke_engine& engine);

}  // namespace bespoke
