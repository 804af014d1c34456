// SPDX-License-Identifier: Apache-2.0
#include "generate/sampling.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "error.h"
#include "exec/noise.h"
#include "format/number_text.h"

namespace bespoke {
namespace {

// Ids of the `count` largest, rising; the lower ids among equals.
std::vector<int32_t> largest(const std::vector<float>& logits, size_t count) {
  std::vector<float> sorted = logits;
  const auto least_at = sorted.begin() + static_cast<ptrdiff_t>(count - 1);
  std::nth_element(sorted.begin(), least_at, sorted.end(), std::greater<>());
  const float least = *least_at;
  auto equals = count - static_cast<size_t>(std::count_if(logits.begin(), logits.end(), [&](float logit) { return logit > least; }));
  std::vector<int32_t> ids;
  for (size_t id = 0; id < logits.size(); id++) {
    if (logits[id] > least || (logits[id] == least && equals > 0)) {
      equals -= logits[id] == least;
      ids.push_back(static_cast<int32_t>(id));
    }
  }
  return ids;
}

std::vector<double> running_sum(const std::vector<double>& weights) {
  std::vector<double> running(weights.size());
  std::partial_sum(weights.begin(), weights.end(), running.begin());
  return running;
}

// Of `kept`, by falling logit, the fewest that hold the share `top_p`; they and their weights, by rising id.
void keep_likeliest(const std::vector<float>& logits, double top_p, std::vector<int32_t>& kept, std::vector<double>& weights) {
  std::vector<size_t> order(kept.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto logit = [&](size_t place) { return logits[static_cast<size_t>(kept[place])]; };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logit(a) > logit(b); });
  std::vector<double> falling;
  for (const size_t place : order) falling.push_back(weights[place]);
  const std::vector<double> running = running_sum(falling);
  const auto last = std::lower_bound(running.begin(), running.end(), top_p * running.back());
  order.resize(std::min(order.size(), static_cast<size_t>(last - running.begin()) + 1));
  std::sort(order.begin(), order.end());
  for (size_t i = 0; i < order.size(); i++) kept[i] = kept[order[i]], weights[i] = weights[order[i]];  // order[i] >= i
  kept.resize(order.size());
  weights.resize(order.size());
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
  size_t best = 0;  // of a NaN, if there is one
  for (size_t id = 1; id < logits.size() && !std::isnan(logits[best]); id++)
    if (!(logits[id] <= logits[best])) best = id;
  if (!std::isfinite(logits[best]))
    throw Error(Kind::Generation, "logits", std::to_string(logits[best]) + " at token " + std::to_string(best),
                "finite numbers, -inf for forbidden tokens", "Check the adapter: training may have diverged; roll back to an earlier one");
  if (sampling.temperature == 0) return static_cast<int32_t>(best);
  std::vector<int32_t> kept;
  if (sampling.top_k > 0 && static_cast<uint64_t>(sampling.top_k) < logits.size()) {
    kept = largest(logits, static_cast<size_t>(sampling.top_k));
  } else {
    kept.resize(logits.size());
    std::iota(kept.begin(), kept.end(), 0);
  }
  std::vector<double> weights;
  weights.reserve(kept.size());
  for (const int32_t id : kept)
    weights.push_back(std::exp((double{logits[static_cast<size_t>(id)]} - double{logits[best]}) / sampling.temperature));
  if (sampling.top_p < 1) keep_likeliest(logits, sampling.top_p, kept, weights);
  const std::vector<double> running = running_sum(weights);
  const Words words = philox({position, 0, static_cast<uint32_t>(Stream::token), 0}, sampling.seed);
  const double u = (words[0] + 0.5) * 0x1p-32;
  const auto found = std::upper_bound(running.begin(), running.end(), u * running.back());
  return kept[std::min(kept.size() - 1, static_cast<size_t>(found - running.begin()))];
}

}  // namespace bespoke
