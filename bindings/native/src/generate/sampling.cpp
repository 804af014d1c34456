// SPDX-License-Identifier: Apache-2.0
#include "generate/sampling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>

#include "error.h"
#include "exec/noise.h"
#include "format/number_text.h"

namespace bespoke {
namespace {

constexpr size_t kBlock = 512;
constexpr size_t kBuckets = 4096;

// The first of the largest logits, or the first NaN. A block's comparisons need no order, so the compiler does several at once.
size_t largest_of(const std::vector<float>& logits) {
  size_t best = 0;
  for (size_t begin = 0; begin < logits.size() && !std::isnan(logits[best]); begin += kBlock) {
    const size_t end = std::min(begin + kBlock, logits.size());
    const float most = logits[best];
    int larger = 0;
    for (size_t id = begin; id < end; id++) larger += logits[id] <= most ? 0 : 1;
    for (size_t id = begin; larger && id < end && !std::isnan(logits[best]); id++)
      if (!(logits[id] <= logits[best])) best = id;
  }
  return best;
}

// Weights in [0, 1] that are alike have the same bucket, larger ones an earlier one: 64 between a number and its half.
size_t bucket_of(double weight) {
  constexpr uint64_t one = 0x3ff0000000000000;
  uint64_t bits;
  std::memcpy(&bits, &weight, sizeof bits);
  return std::min<uint64_t>((one - bits) >> 46, kBuckets - 1);
}

double sum_of(const std::vector<double>& weights) { return std::accumulate(weights.begin(), weights.end(), 0.0); }

// Those of the k largest logits in proportion to their probabilities, the largest 1. The others are 0. The lower ids first among equals.
std::vector<double> weights_of(const std::vector<float>& logits, float largest, const Sampling& sampling) {
  float least = -std::numeric_limits<float>::infinity();
  ptrdiff_t equals = static_cast<ptrdiff_t>(logits.size());  // of those with the least one, how many are kept
  if (sampling.top_k > 0 && static_cast<uint64_t>(sampling.top_k) < logits.size()) {
    std::vector<float> top(static_cast<size_t>(sampling.top_k));
    std::partial_sort_copy(logits.begin(), logits.end(), top.begin(), top.end(), std::greater<>());
    least = top.back();
    equals = std::count(top.begin(), top.end(), least);
  }
  std::vector<double> weights(logits.size());
  for (size_t id = 0; id < logits.size(); id++) {
    if (logits[id] < least || (logits[id] == least && equals-- <= 0)) continue;
    weights[id] = std::exp((double{logits[id]} - double{largest}) / sampling.temperature);
  }
  return weights;
}

// Keeps the weights of the likeliest tokens, the fewest that hold the share `top_p`, and sets the others to 0. To sort a vocabulary may
// take longer than its logits took, so of all buckets one is sorted.
void keep_likeliest(const std::vector<float>& logits, double top_p, std::vector<double>& weights) {
  std::array<double, kBuckets> sums{};
  for (const double weight : weights) sums[bucket_of(weight)] += weight;
  const double enough = top_p * sum_of(weights);
  double sum = 0;
  size_t last = 0;
  while (last + 1 < kBuckets && sum + sums[last] < enough) sum += sums[last++];

  std::vector<size_t> nearest;  // ids of the last bucket that is needed
  for (size_t id = 0; id < weights.size(); id++) {
    const size_t bucket = bucket_of(weights[id]);
    if (bucket == last) nearest.push_back(id);
    if (bucket > last) weights[id] = 0;
  }
  std::stable_sort(nearest.begin(), nearest.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  for (const size_t id : nearest) {
    if (sum >= enough) weights[id] = 0;
    sum += weights[id];
  }
}

}  // namespace

void check(const Sampling& sampling) {
  const auto refuse = [](const char* what, const std::string& got, const char* expected) {
    throw Error(Kind::Generation, setting(what), got, expected, "Change " + setting(what));
  };
  if (!(sampling.temperature >= 0) || !std::isfinite(sampling.temperature))
    refuse("temperature", repr_of(sampling.temperature), "a number, 0 (greedy) or more");
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) refuse("top_p", repr_of(sampling.top_p), "a number above 0, at most 1");
  if (sampling.top_k < 0) refuse("top_k", std::to_string(sampling.top_k), "1 or more, or 0 for all");
}

int32_t choose_token(const std::vector<float>& logits, const Sampling& sampling, uint32_t position) {
  const size_t best = largest_of(logits);
  if (!std::isfinite(logits[best]))
    throw Error(Kind::Generation, "logits", std::to_string(logits[best]) + " at token " + std::to_string(best),
                "finite numbers, -inf for forbidden tokens", "Check the adapter: training may have diverged; roll back to an earlier one");
  if (sampling.temperature == 0) return static_cast<int32_t>(best);

  std::vector<double> weights = weights_of(logits, logits[best], sampling);
  if (sampling.top_p < 1) keep_likeliest(logits, sampling.top_p, weights);
  const Words words = philox({position, 0, static_cast<uint32_t>(Stream::token), 0}, sampling.seed);
  const double u = (words[0] + 0.5) * 0x1p-32, drawn = u * sum_of(weights);
  double running = 0;
  size_t id = 0;
  while (id + 1 < weights.size() && (running += weights[id]) <= drawn) id++;
  return static_cast<int32_t>(id);
}

}  // namespace bespoke
