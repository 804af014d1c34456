// SPDX-License-Identifier: Apache-2.0
// Rows as whole numbers of D bytes, for products of int4 codes that are sums of integers: x = v 2^(e - (8 D - 2)), where e belongs to a
// GROUP of a row and |v| < 2^(8 D - 1). With three bytes, the sum of 32 codes times such numbers is below 32 * 8 * 2^23 = 2^31. So it is
// exact in 32 bits, however it is split into smaller products and though parts of it wrap around. Rounding to v costs half a step, at most
// 2^-23 of the largest summand of its group. So the error of a row is that of fp32 in norm, and not element by element: a summand of 2^-20
// of its group's largest keeps few bits. Two bytes are for rows that may be rounded: half a step is 2^-15 of the largest. Sums go from
// group to group, DEPTH summands in one chain, and all sets that multiply whole numbers of as many bytes have the same bits.
#pragma once

#include "kernels/table.h"

namespace bespoke::kernels {

// A number has digits from -128 to 127. So the largest is 0x7f7f7f, and not 2^23 - 1, whose lowest digit would be 128.
constexpr int DIGITS = 3, ROUNDED_DIGITS = 2;

// Added to a number, its bytes are its digits and 128.
template <int D>
constexpr int32_t DIGIT_OFFSET = 0x808080 >> 8 * (DIGITS - D);

struct Scale {
  float up, down;  // x up = v, v down = x
};

// `top`: the largest of the bits of a group's numbers without their signs.
template <int D>
static inline Scale scale_for(uint32_t top) {
  Scale scale = {0, 0};
  if (top >= 0x7f800000u) {  // infinite, or not a number: the result is none either
    scale.down = __builtin_nanf("");
    return scale;
  }
  int32_t e = static_cast<int32_t>((top + 0x10200u) >> 23) - 127;  // from 0x7efe00 on, a mantissa counts as the next power's
  if (e < -104) e = -104;                                          // so that `down` is a normal number
  constexpr int bits = 8 * D - 2;
  const uint32_t up = static_cast<uint32_t>(bits - e + 127) << 23, down = static_cast<uint32_t>(e - bits + 127) << 23;
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
