// SPDX-License-Identifier: Apache-2.0
// A row of a tokenized example: what the text code makes and the state keeps.
#pragma once

#include <cstdint>
#include <vector>

namespace bespoke {

struct TokenRow {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> mask;  // 0 or 1 for each token: 1 where it is trained on
  // Of a preference: the same prompt with the answer that was not chosen. Empty: the example has none.
  std::vector<int32_t> rejected_tokens = {};
  std::vector<uint8_t> rejected_mask = {};
};

}  // namespace bespoke
