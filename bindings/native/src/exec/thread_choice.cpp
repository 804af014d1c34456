// SPDX-License-Identifier: Apache-2.0
#include "exec/thread_choice.h"

#include <algorithm>
#include <limits>

namespace bespoke {
namespace {

constexpr size_t kSteps = 2;     // with each number: other work of the device seldom disturbs both, and the first of a run opens files
constexpr double kSlower = 1.3;  // than the step that decided: the device has changed
constexpr int kSlowSteps = 3;    // in a row: one alone was disturbed

}  // namespace

ThreadChoice::ThreadChoice(int32_t most) {
  for (const int32_t threads : {2, 4})
    if (threads < most) candidates_[count_++].threads = threads;
  candidates_[count_++].threads = most;
  try_all();
}

void ThreadChoice::try_all() {
  for (Candidate& candidate : candidates_) candidate.seconds = std::numeric_limits<double>::infinity();
  left_ = count_ > 1 ? kSteps * count_ : 0;
  next_ = count_ - 1;  // what the pool was made for
  slow_ = 0;
}

void ThreadChoice::add(double seconds) {
  if (count_ == 1) return;
  Candidate& now = candidates_[next_];
  if (left_ == 0) {
    slow_ = seconds > kSlower * now.seconds ? slow_ + 1 : 0;
    if (slow_ == kSlowSteps) try_all();
    return;
  }
  now.seconds = std::min(now.seconds, seconds);
  next_ = (next_ + 1) % count_;
  if (--left_ > 0) return;
  const auto faster = [](const Candidate& a, const Candidate& b) { return a.seconds < b.seconds; };
  next_ = static_cast<size_t>(std::min_element(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(count_), faster) -
                              candidates_.begin());
}

}  // namespace bespoke
