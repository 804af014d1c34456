// SPDX-License-Identifier: Apache-2.0
#include "model/call_queue.h"

#include <algorithm>
#include <chrono>

#include "error.h"
#include "this_call.h"

namespace bespoke {
namespace {

constexpr auto kLook = std::chrono::milliseconds(5);  // how late a call that waits hears that it must end

}  // namespace

CallQueue::Turn::~Turn() {
  const MutexLock held(queue_.mutex_);
  queue_.is_taken_ = false;
  queue_.holder_ = {};
  queue_.changed_.notify_all();
}

CallQueue::Turn CallQueue::turn(double seconds) {
  MutexLock held(mutex_);
  const bool is_own = is_taken_ && holder_ == std::this_thread::get_id();
  const auto is_free = [&]() REQUIRES(mutex_) { return !is_taken_ && (waiting_.empty() || waiting_.front() == &held); };
  if (is_own || (seconds == 0 && !is_free()))
    throw Error(
        Kind::Busy, "the model",
        is_own ? std::string("a call from within a callback of the one that ") + what_ : std::string("a call while another one ") + what_,
        "one such call at a time", is_own ? "Return from the callback first" : "Wait until it has ended, or cancel it");
  if (!is_free()) {
    waiting_.push_back(&held);
    const auto leave = [&]() REQUIRES(mutex_) {
      waiting_.erase(std::find(waiting_.begin(), waiting_.end(), &held));
      changed_.notify_all();  // another one may be next
    };
    const auto since = CallSettings::Clock::now();
    try {
      while (!is_free()) {
        ThisCall::check_for_turn();
        if (seconds > 0 && std::chrono::duration<double>(CallSettings::Clock::now() - since).count() > seconds)
          throw Error(Kind::Busy, "the model", std::string("a call while another one ") + what_ + ", after the time that it may wait",
                      "one such call at a time", "Wait longer, or cancel the other one");
        changed_.wait_for(held.for_condition(), kLook);
      }
    } catch (...) {
      leave();
      throw;
    }
    leave();
  }
  is_taken_ = true;
  holder_ = std::this_thread::get_id();
  return Turn(*this);
}

}  // namespace bespoke
