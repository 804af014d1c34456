// SPDX-License-Identifier: Apache-2.0
#include "exec/control.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace bespoke {
namespace {

constexpr auto kLook = std::chrono::milliseconds(5);  // how late a rest hears that the call must end

}  // namespace

Control::Control(const Limits& limits, CallSettings settings) : limits_(limits), end_(std::move(settings)) {}

void Control::begin(CallSettings settings) { end_ = CallEnd(std::move(settings)); }

void Control::rest(double worked_seconds) const {
  const double pace = limits_.pace;
  if (pace >= 1) return;
  const auto until = CallEnd::Clock::now() +
                     std::chrono::duration_cast<CallEnd::Clock::duration>(std::chrono::duration<double>(worked_seconds * (1 / pace - 1)));
  for (auto now = CallEnd::Clock::now(); now < until && !must_end(); now = CallEnd::Clock::now())
    std::this_thread::sleep_for(std::min<CallEnd::Clock::duration>(kLook, until - now));
}

void Control::tell(Phase phase, int64_t step, int64_t steps, double loss) {
  if (end_.is_followed()) end_.tell({phase, step, steps, loss, columns_.read().total()});
}

}  // namespace bespoke
