// SPDX-License-Identifier: Apache-2.0
// What the caller of a function of the C API has said about this one call: when it ends, how long it waits, and whom it tells how far it
// is. Code that takes long asks for it here, however deep it lies below the call.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "enums.h"

namespace bespoke {

// Thrown where a call must end: what it has not committed is dropped.
struct Abandoned {};

struct Told {  // to whom follows a call
  Phase phase;
  int64_t step = 0, steps = 0;  // of the run; 0 where there is none
  double loss = std::numeric_limits<double>::quiet_NaN();
  int64_t footprint_bytes = 0;
};

using Listener = std::function<bool(const Told&)>;  // true: the call shall end

struct CallSettings {  // of one call
  using Clock = std::chrono::steady_clock;
  static Clock::time_point after(double seconds);  // from now; at most what the clock can hold

  std::vector<const std::atomic<bool>*> cancels;  // any of them ends it; they outlive it
  std::optional<Clock::time_point> deadline;      // none: it has all the time that it needs
  Listener listener;
  double busy_seconds = 30;  // how long it waits for another process; less than 0: however long it takes
  double wait_seconds = 0;   // how long it waits for its turn among the calls that compute; less than 0: the same
};

// Whether a call must end.
class CallEnd {
 public:
  using Clock = CallSettings::Clock;

  explicit CallEnd(CallSettings settings = {}) : settings_(std::move(settings)) {}

  bool must_end() const { return cancelled() || (settings_.deadline && Clock::now() >= *settings_.deadline); }
  bool cancelled() const;
  bool has_time_for(double seconds) const;

  bool is_followed() const { return settings_.listener && !ended_by_listener_; }
  void tell(const Told& told);

 private:
  CallSettings settings_;
  bool ended_by_listener_ = false;  // on the thread of the call
};

// The call that this thread serves, from its construction to its end. Calls nest: a callback of one may make another.
class ThisCall {
 public:
  // Of a call that `computes`, only what it waits for looks at its end here: its machine looks itself, between instructions.
  ThisCall(const CallSettings& settings, bool computes);
  ~ThisCall();
  ThisCall(const ThisCall&) = delete;
  ThisCall& operator=(const ThisCall&) = delete;

  // Throws Abandoned where the call must end. Nothing where this thread serves none, or where the call is committed.
  static void check();
  static void check_for_turn();                 // the same, also of a call that computes: it has not begun
  static void tell(int64_t done, int64_t all);  // how many examples, or bytes of files, are done; with a `check` before and after
  // How long to wait for another process: what this thread's call says, or what one has that says nothing. A call that computes and has
  // to end still commits what it has done: it waits, but for no longer than one that says nothing.
  static double busy_seconds();

 private:
  friend class Committed;
  ThisCall* const outer_;
  CallEnd end_;
  const double busy_seconds_;
  const bool computes_;
  int committed_ = 0;
};

// From here to the end of the scope the call of this thread goes on to its end: what it was asked for has happened.
class Committed {
 public:
  Committed();
  ~Committed();
  Committed(const Committed&) = delete;
  Committed& operator=(const Committed&) = delete;

 private:
  ThisCall* const call_;
};

// Waits in short sleeps until another process lets go, for at most ThisCall::busy_seconds; whether it did. Throws Abandoned as `check`.
bool wait_for_others(const std::function<bool()>& ready);

}  // namespace bespoke
