// SPDX-License-Identifier: Apache-2.0
// How much better an adapter must be than another, on the same texts, not to be so by luck.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace bespoke {

struct Pair {  // sums of the losses of one text, with the one adapter and with the other
  double before, after;
  int64_t tokens;
};

// The gain is sum(before - after) / sum(tokens), in nats a token: a ratio of sums over texts that are drawn alike, so that its standard
// error is sqrt(n / (n - 1) * sum((before - after - gain * tokens)^2)) / sum(tokens) (Cochran, Sampling Techniques, 6.4). None of fewer
// than two pairs.
std::optional<double> standard_error(const std::vector<Pair>& pairs);

// A quantile of Student's t by that of the normal distribution and the expansion of Cornish and Fisher (Abramowitz and Stegun, 26.7.5):
// too low by at most 0.8% from three degrees of freedom on.
double student_t(double normal_quantile, int64_t degrees);

}  // namespace bespoke
