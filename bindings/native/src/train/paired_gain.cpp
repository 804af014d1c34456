// SPDX-License-Identifier: Apache-2.0
#include "train/paired_gain.h"

#include <cmath>

namespace bespoke {

double student_t(double normal_quantile, int64_t degrees) {
  const double x = normal_quantile, n = static_cast<double>(degrees), x2 = x * x;
  const double first = (x2 + 1) * x / 4, second = ((5 * x2 + 16) * x2 + 3) * x / 96;
  const double third = (((3 * x2 + 19) * x2 + 17) * x2 - 15) * x / 384;
  return x + first / n + second / (n * n) + third / (n * n * n);
}

std::optional<double> standard_error(const std::vector<Pair>& pairs) {
  if (pairs.size() < 2) return std::nullopt;
  double gained = 0, tokens = 0, squares = 0;
  for (const Pair& pair : pairs) gained += pair.before - pair.after, tokens += static_cast<double>(pair.tokens);
  const double gain = gained / tokens;
  for (const Pair& pair : pairs) {
    const double apart = pair.before - pair.after - gain * static_cast<double>(pair.tokens);
    squares += apart * apart;
  }
  const double n = static_cast<double>(pairs.size());
  return std::sqrt(n / (n - 1) * squares) / tokens;
}

}  // namespace bespoke
