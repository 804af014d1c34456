// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <limits>

namespace bespoke {

// The nearest number of float16, half to even; beyond its largest one infinity.
inline float as_half(float number) {
  constexpr int significant = 11, least_exponent = -14;
  constexpr float largest = 65504, beyond = 65520;  // halfway to the next power of two
  if (!std::isfinite(number) || number == 0) return number;
  if (std::fabs(number) >= beyond) return std::copysign(std::numeric_limits<float>::infinity(), number);
  int exponent = 0;
  std::frexp(number, &exponent);  // 0.5 <= mantissa < 1
  const int step = std::max(exponent - 1, least_exponent) - (significant - 1);
  const float rounded = std::ldexp(std::nearbyint(std::ldexp(number, -step)), step);
  return std::fabs(rounded) > largest ? std::copysign(largest, number) : rounded;
}

}  // namespace bespoke
