// SPDX-License-Identifier: Apache-2.0
// The next token from logits: greedy, or drawn by temperature, top-k and top-p with a counter instead of a generator. The rule stands in
// sdk/bespoke/rules/sampling.py.
#pragma once

#include <cstdint>
#include <vector>

namespace bespoke {

struct Sampling {
  double temperature = 0;  // 0: greedy
  double top_p = 1;        // the likeliest tokens that hold this share together
  int64_t top_k = 0;       // the k largest logits; 0: all
  uint64_t seed = 0;
};

void check(const Sampling& sampling);  // GenerationError for what is out of its range

// `position`: how many tokens stand before this one; (seed, position) decide the draw. GenerationError where the largest logit is no
// finite number.
int32_t choose_token(const std::vector<float>& logits, const Sampling& sampling, uint32_t position);

}  // namespace bespoke
