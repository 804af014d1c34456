// SPDX-License-Identifier: Apache-2.0
#include "platform/cores.h"

#include <algorithm>
#include <cmath>

namespace bespoke {
namespace {

constexpr int kLeast = 2, kMost = 4;  // threads, where cores are of several classes

// Cores of one design have clocks that differ a little: on desktops by what each of them can be boosted to. A class of other cores
// begins where the next faster core is faster by a quarter.
bool is_another_class(int64_t slower, int64_t faster) { return faster * 4 > slower * 5; }

}  // namespace

int usable_threads(const Cores& cores) {
  const int all = static_cast<int>(cores.all.size());
  if (!(cores.quota > 0)) return all;
  return std::min(all, static_cast<int>(std::ceil(std::min(cores.quota, double{1 << 20}))));
}

int threads_for(const Cores& cores) {
  std::vector<int64_t> speeds;
  for (const Core& core : cores.all) speeds.push_back(core.capacity ? core.capacity : core.max_khz);
  std::sort(speeds.begin(), speeds.end());
  const auto next_class = std::adjacent_find(speeds.begin(), speeds.end(), is_another_class);
  const int usable = usable_threads(cores);
  if (next_class == speeds.end() || speeds.front() <= 0) return usable;
  return std::min(usable, std::clamp(static_cast<int>(speeds.end() - next_class) - 1, kLeast, kMost));
}

}  // namespace bespoke
