// SPDX-License-Identifier: Apache-2.0
// What a call that computes is told while it runs, from any thread: to end, by when, how fast, within how much memory; and whom it
// tells how far it is.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

#include "platform/memory.h"
#include "this_call.h"

namespace bespoke {

struct Limits {  // of a model; they may change while it computes
  static constexpr int64_t kNone = -1;
  std::atomic<int64_t> added_bytes{kNone};  // which may be added to `idle_bytes`; nothing but this is set from other threads
  std::atomic<double> pace{1};              // share of its time in which a call computes
  std::atomic<int64_t> idle_bytes{0};       // what the process held before, where a limit counts what is added to it; 0: all of it counts
  int64_t memory_bytes() const {            // of the whole process
    const int64_t added = added_bytes.load(std::memory_order_relaxed);
    return added < 0 ? kNone : idle_bytes.load(std::memory_order_relaxed) + added;
  }
};

class Control {
 public:
  explicit Control(const Limits& limits, CallSettings settings = {});

  void begin(CallSettings settings);  // another call: nothing of the one before holds any more

  const Limits& limits() const { return limits_; }
  bool must_end() const { return end_.must_end(); }
  bool cancelled() const { return end_.cancelled(); }  // the deadline left aside
  void check() const {                                 // before each instruction
    if (must_end()) throw Abandoned{};
  }
  Stopped why() const { return end_.cancelled() ? Stopped::stop_requested : Stopped::deadline; }  // where it must end
  bool has_time_for(double seconds) const { return end_.has_time_for(seconds); }

  void rest(double worked_seconds) const;  // as the pace says; not past the moment at which the call must end
  void tell(Phase phase, int64_t step = 0, int64_t steps = 0, double loss = std::numeric_limits<double>::quiet_NaN());

 private:
  const Limits& limits_;
  CallEnd end_;
  MemoryColumns columns_;
};

}  // namespace bespoke
