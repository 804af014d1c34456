// SPDX-License-Identifier: Apache-2.0
#include "train/cut_back.h"

#include <cmath>
#include <string_view>

namespace bespoke {

namespace {

constexpr double kFurther = 0.95;  // than to the very limit, which the next look would miss by a little
constexpr double kFar = 0.5;       // of the excess may stay: more than half of it is cut by the square
constexpr std::string_view kTrainedB = "lora_B";

bool is_b(std::string_view name) { return name.size() >= kTrainedB.size() && name.substr(name.size() - kTrainedB.size()) == kTrainedB; }

}  // namespace

double cut(double excess, double tolerance) {
  if (!std::isfinite(excess)) return 0;
  const double share = tolerance / excess;
  return kFurther * (share < kFar ? std::sqrt(share) : share);
}

ScaledAdapter::ScaledAdapter(std::vector<NamedTensor>& adapter, double factor, MemoryGuard& guard) {
  for (NamedTensor& piece : adapter) {
    if (!is_b(piece.name)) continue;
    guard.ask(piece.elements() * static_cast<int64_t>(sizeof(float)), "The adapter, of which less is kept");
    pieces_.emplace_back(piece.data, piece.data + piece.elements());
    for (float& one : pieces_.back()) one = static_cast<float>(one * factor);
    piece.data = pieces_.back().data();
  }
}

}  // namespace bespoke
