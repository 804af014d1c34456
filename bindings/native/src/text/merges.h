// SPDX-License-Identifier: Apache-2.0
// Byte pair encoding of one word: of all neighbours that are a merge, the one of the lowest rank becomes one token, the leftmost of
// several first, until there is none.
#pragma once

#include <vector>

#include "text/tokenizer_file.h"

namespace bespoke {

// Merges `symbols` in place.
void merge_symbols(const TokenizerFile& file, std::vector<uint32_t>& symbols);

}  // namespace bespoke
