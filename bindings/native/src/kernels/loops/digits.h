// SPDX-License-Identifier: Apache-2.0
// Rows as whole numbers, for products of int4 codes that are sums of integers: x = v 2^(e - 22), where e belongs to a GROUP of a row and
// |v| <= MOST. The sum of 32 codes times such numbers is below 32 * 8 * 2^23 = 2^31. So it is exact in 32 bits, however it is split into
// smaller products and though parts of it wrap around. Rounding to v costs half a step, at most 2^-23 of the largest summand of its
// group. So the error of a row is that of fp32 in norm, and not element by element: a summand of 2^-20 of its group's largest keeps
// few bits. Sums go from group to group, DEPTH summands in one chain, and all sets that multiply whole numbers have the same bits.
#pragma once

#include "kernels/table.h"

namespace bespoke::kernels {

// The largest that three digits from -128 to 127 make up. 2^23 - 1 does not: its lowest digit would be 128.
constexpr uint32_t MOST = 0x7f7f7f;
constexpr int DIGITS = 3;
constexpr int32_t DIGIT_OFFSET = 0x808080;  // added to a number, its bytes are its digits and 128

struct Scale {
  float up, down;  // x up = v, v down = x
};

// `top`: the largest of the bits of a group's numbers without their signs.
static inline Scale scale_for(uint32_t top) {
  Scale scale = {0, 0};
  if (top >= 0x7f800000u) {  // infinite, or not a number: the result is none either
    scale.down = __builtin_nanf("");
    return scale;
  }
  int32_t e = static_cast<int32_t>((top + 0x10200u) >> 23) - 127;  // from 0x7efe00 on, a mantissa counts as the next power's
  if (e < -104) e = -104;                                          // so that `down` is a normal number
  const uint32_t up = static_cast<uint32_t>(22 - e + 127) << 23, down = static_cast<uint32_t>(e - 22 + 127) << 23;
  __builtin_memcpy(&scale.up, &up, 4);
  __builtin_memcpy(&scale.down, &down, 4);
  return scale;
}

// The summands of a group of x, which has K of them: those that do not exist are 0.
static inline const float* group_of(const float* x, int64_t k, int64_t K, float (&own)[GROUP]) {
  if (k + GROUP <= K) return x + k;
  for (int64_t i = 0; i < GROUP; i++) own[i] = k + i < K ? x[k + i] : 0.0f;
  return own;
}

}  // namespace bespoke::kernels
