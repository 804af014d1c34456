// SPDX-License-Identifier: Apache-2.0
// One call at a time, in the order in which they asked.
#pragma once

#include <condition_variable>
#include <deque>
#include <thread>

#include "locks.h"

namespace bespoke {

class CallQueue {
 public:
  // `what` computes, or keeps the store busy: for the error.
  explicit CallQueue(const char* what) : what_(what) {}

  class [[nodiscard]] Turn {  // of a call, for as long as it lives
   public:
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    friend class CallQueue;
    explicit Turn(CallQueue& queue) : queue_(queue) {}
    CallQueue& queue_;
  };

  // Waits for at most `seconds` (0: not at all; less: however long it takes). Busy where no turn came, and at once where this thread has
  // one already: a callback that would wait for its own call. Abandoned where the call of this thread must end.
  Turn turn(double seconds);

 private:
  const char* const what_;
  Mutex mutex_;
  std::condition_variable changed_;
  std::deque<const void*> waiting_ GUARDED_BY(mutex_);  // the first one is next
  bool is_taken_ GUARDED_BY(mutex_) = false;
  std::thread::id holder_ GUARDED_BY(mutex_);
};

}  // namespace bespoke
