// SPDX-License-Identifier: Apache-2.0
// What the forms of an example share: counts of their rows, and fields that are one word or absent.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/examples.h"
#include "token_row.h"

namespace bespoke {

uint64_t trained(const std::vector<uint8_t>& mask);

EncodedExample with_counts(std::vector<TokenRow> rows);

// Of one row, `whole`, that was cut to `kept`.
EncodedExample counted(const TokenRow& whole, TokenRow kept);

// Whether the optional field `name` of an example is `word`, the only one that it may have. DataError for another.
bool says(const nlohmann::json& example, const char* name, const char* word, const std::string& subject, const char* meaning);

}  // namespace bespoke
