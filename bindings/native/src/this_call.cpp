// SPDX-License-Identifier: Apache-2.0
#include "this_call.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "platform/memory.h"

namespace bespoke {
namespace {

constexpr double kLongest = 1e9;  // seconds: a moment that the clock can hold
constexpr auto kPoll = std::chrono::milliseconds(5);

thread_local ThisCall* innermost = nullptr;

}  // namespace

CallSettings::Clock::time_point CallSettings::after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::min(seconds, kLongest)));
}

bool CallEnd::cancelled() const {
  return ended_by_listener_ || std::any_of(settings_.cancels.begin(), settings_.cancels.end(),
                                           [](const auto* flag) { return flag->load(std::memory_order_relaxed); });
}

bool CallEnd::has_time_for(double seconds) const {
  return !settings_.deadline || std::chrono::duration<double>(*settings_.deadline - Clock::now()).count() >= seconds;
}

void CallEnd::tell(const Told& told) {
  if (is_followed()) ended_by_listener_ = settings_.listener(told);
}

ThisCall::ThisCall(const CallSettings& settings, bool computes)
    : outer_(innermost), end_(settings), busy_seconds_(settings.busy_seconds), computes_(computes) {
  innermost = this;
}

ThisCall::~ThisCall() { innermost = outer_; }

void ThisCall::check() {
  if (innermost && !innermost->computes_) check_for_turn();
}

void ThisCall::check_for_turn() {
  if (innermost && !innermost->committed_ && innermost->end_.must_end()) throw Abandoned{};
}

void ThisCall::tell(int64_t done, int64_t all) {
  if (!innermost || innermost->computes_ || innermost->committed_) return;
  check();
  if (innermost->end_.is_followed())
    innermost->end_.tell({Phase::store, done, all, std::numeric_limits<double>::quiet_NaN(), MemoryColumns().read().total()});
  check();
}

double ThisCall::busy_seconds() {
  const double otherwise = CallSettings().busy_seconds;
  if (!innermost) return otherwise;
  const double said = innermost->busy_seconds_;
  if (!innermost->computes_ || !innermost->end_.must_end()) return said;
  return said < 0 ? otherwise : std::min(said, otherwise);
}

Committed::Committed() : call_(innermost) {
  if (call_) call_->committed_++;
}

Committed::~Committed() {
  if (call_) call_->committed_--;
}

bool wait_for_others(const std::function<bool()>& ready) {
  const auto since = CallSettings::Clock::now();
  while (!ready()) {
    ThisCall::check();
    const double most = ThisCall::busy_seconds();
    if (most >= 0 && std::chrono::duration<double>(CallSettings::Clock::now() - since).count() > most) return false;
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

}  // namespace bespoke
