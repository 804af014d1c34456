// SPDX-License-Identifier: Apache-2.0
// The question asked before the process takes more memory. The whole process counts: nothing of it is idle. Where the system says
// nothing, a guard can only compare what is asked with the limit.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "exec/control.h"
#include "platform/memory.h"

namespace bespoke {

// Asked before each load and call whether it still fits: the process ends in our error, not by the system's hand.
class MemoryGuard {
 public:
  explicit MemoryGuard(const Limits& limits) : limits_(limits) {}  // whose limit may change

  // Throws BudgetExceeded if `subject`, about to add so many bytes, would go over the limit. While the last reading left more
  // than twice the room that was asked for since, it is taken again only once a millisecond.
  void ask(int64_t bytes_to_add, const std::string& subject) {
    asked_ += bytes_to_add;
    const int64_t limit = limits_.memory_bytes();
    const bool ample = limit < 0 || (read_once_ && last_ + 2 * asked_ <= limit);
    if (ample && std::chrono::steady_clock::now() < next_reading_) return;
    hold(bytes_to_add, subject);
  }

  // Memory that the engine held in its last run, and that the system does not count to the process, or no more.
  void engine_holds(int64_t bytes) {
    if (bytes == engine_) return;
    engine_ = bytes;
    observe();
  }

  // Takes the footprint now into the peak. To be called before memory is given back.
  int64_t observe();

  int64_t peak() const { return peak_; }  // since it was made
  void begin_step() {
    step_peak_ = {};
    observe();
  }
  const Footprint& step_peak() const { return step_peak_; }  // all columns at the highest reading since `begin_step`
  const MemoryColumns& columns() const { return columns_; }

 private:
  void hold(int64_t bytes_to_add, const std::string& subject);

  MemoryColumns columns_;
  const Limits& limits_;
  int64_t peak_ = 0;
  Footprint step_peak_;
  int64_t engine_ = 0;
  int64_t last_ = 0, asked_ = 0;  // footprint when it was last read, and what was asked for since
  bool read_once_ = false;
  std::chrono::steady_clock::time_point next_reading_{};
};

int64_t footprint_now();               // of the process, in bytes; with what was freed and malloc still holds
std::string megabytes(int64_t bytes);  // "12.3 MB"

}  // namespace bespoke
