// SPDX-License-Identifier: Apache-2.0
#include "exec/control.h"

#include <algorithm>
#include <thread>

namespace bespoke {
namespace {

constexpr double kLongestDeadline = 1e9;  // seconds: a moment that the clock can hold
constexpr auto kLook = std::chrono::milliseconds(5);  // how late a rest hears that the call must end

}  // namespace

Control::Control(const Limits& limits, CallSettings settings) : limits_(limits) { begin(std::move(settings)); }

void Control::begin(CallSettings settings) {
  cancels_ = std::move(settings.cancels);
  listener_ = std::move(settings.listener);
  ended_by_listener_ = false;
  deadline_.reset();
  if (settings.deadline_seconds)
    deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                   std::chrono::duration<double>(std::min(*settings.deadline_seconds, kLongestDeadline)));
}

bool Control::cancelled() const {
  return ended_by_listener_ ||
         std::any_of(cancels_.begin(), cancels_.end(), [](const auto* flag) { return flag->load(std::memory_order_relaxed); });
}

bool Control::has_time_for(double seconds) const {
  return !deadline_ || std::chrono::duration<double>(*deadline_ - Clock::now()).count() >= seconds;
}

void Control::rest(double worked_seconds) const {
  const double pace = limits_.pace;
  if (pace >= 1) return;
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(worked_seconds * (1 / pace - 1)));
  for (auto now = Clock::now(); now < until && !must_end(); now = Clock::now())
    std::this_thread::sleep_for(std::min<Clock::duration>(kLook, until - now));
}

void Control::tell(Phase phase, int64_t step, int64_t steps, double loss) {
  if (!listener_ || ended_by_listener_) return;
  ended_by_listener_ = listener_({phase, step, steps, loss, columns_.read().total()});
}

}  // namespace bespoke
