// SPDX-License-Identifier: Apache-2.0
#include "engines/mlx/evaluate.h"

#include <unordered_set>
#include <utility>

namespace bespoke {
namespace {

using mlx::core::array;

// What is not computed yet, each after what it is made of.
std::vector<array> in_order(const std::vector<array>& results) {
  std::vector<array> order;
  std::unordered_set<std::uintptr_t> met;
  std::vector<std::pair<array, size_t>> path;
  const auto meet = [&](const array& a) {
    if (!a.has_primitive() || a.status() != array::Status::unscheduled || !met.insert(a.id()).second) return;
    for (const array& sibling : a.siblings()) met.insert(sibling.id());
    path.emplace_back(a, 0);
  };
  for (const array& result : results) {
    meet(result);
    while (!path.empty()) {
      const size_t next = path.back().second++;
      if (next < path.back().first.inputs().size()) {
        meet(path.back().first.inputs()[next]);
      } else {
        order.push_back(path.back().first);
        path.pop_back();
      }
    }
  }
  return order;
}

size_t bytes_around(const array& a) {
  size_t bytes = a.nbytes();
  for (const array& sibling : a.siblings()) bytes += sibling.nbytes();
  for (const array& operand : a.inputs()) bytes += operand.nbytes();
  return bytes;
}

}  // namespace

void evaluate(const std::vector<array>& results) {
  std::vector<array> order = in_order(results);
  std::vector<array> portion;
  size_t bytes = 0;
  const auto compute = [&] {
    if (!portion.empty()) mlx::core::eval(std::exchange(portion, {}));
    bytes = 0;
  };
  for (array& step : order) {
    const size_t more = bytes_around(step);
    if (bytes + more > kAloneBytes) compute();
    bytes += more;
    // A handle left behind would keep the step's memory, and keep MLX from writing the next one's result into it.
    portion.push_back(std::move(step));
    if (bytes > kAloneBytes) compute();
  }
  compute();
}

}  // namespace bespoke
