// SPDX-License-Identifier: Apache-2.0
// What a call that computes is told while it runs, from any thread: to end, by when, how fast, within how much memory; and whom it
// tells how far it is.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "enums.h"
#include "platform/memory.h"

namespace bespoke {

// Thrown where a call was asked to end: nothing of the step, or of the evaluation, was kept.
struct Abandoned {};

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

struct Told {  // to whom follows a call
  Phase phase;
  int64_t step = 0, steps = 0;  // of the run; 0 where there is none
  double loss = std::numeric_limits<double>::quiet_NaN();
  int64_t footprint_bytes = 0;
};

using Listener = std::function<bool(const Told&)>;  // true: the call shall end

struct CallSettings {  // of one call
  std::vector<const std::atomic<bool>*> cancels;  // any of them ends it; they outlive it
  std::optional<double> deadline_seconds;         // from its beginning; none: no deadline
  Listener listener;
};

class Control {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Control(const Limits& limits, CallSettings settings = {});

  void begin(CallSettings settings);  // another call: nothing of the one before holds any more

  const Limits& limits() const { return limits_; }
  bool must_end() const { return cancelled() || (deadline_ && Clock::now() >= *deadline_); }
  void check() const {  // before each instruction
    if (must_end()) throw Abandoned{};
  }
  Stopped why() const { return cancelled() ? Stopped::stop_requested : Stopped::deadline; }  // where it must end
  bool has_time_for(double seconds) const;

  void rest(double worked_seconds) const;  // as the pace says; not past the moment at which the call must end
  void tell(Phase phase, int64_t step = 0, int64_t steps = 0, double loss = std::numeric_limits<double>::quiet_NaN());

 private:
  bool cancelled() const;

  const Limits& limits_;
  std::vector<const std::atomic<bool>*> cancels_;
  std::optional<Clock::time_point> deadline_;
  Listener listener_;
  MemoryColumns columns_;
  bool ended_by_listener_ = false;  // on the thread of the call
};

}  // namespace bespoke
