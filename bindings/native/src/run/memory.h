// SPDX-License-Identifier: Apache-2.0
// What memory this process takes, and the question asked before it takes more.
//
// Footprint is what phone systems judge a process by: anonymous, shared-memory and swapped pages (RssAnon + RssShmem + VmSwap).
// On the core the whole process counts: nothing is idle. Where there is no /proc nothing is measured, and a guard can only
// compare what is asked with the limit.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace bespoke {

struct Footprint {  // bytes
  int64_t anonymous = 0, shmem = 0, swap = 0, file = 0;
  int64_t total() const { return anonymous + shmem + swap; }
};

// /proc/self/status through a descriptor that stays open: 3 to 10 us a read. A forked child needs its own.
class MemoryColumns {
 public:
  MemoryColumns();
  ~MemoryColumns();
  MemoryColumns(const MemoryColumns&) = delete;
  MemoryColumns& operator=(const MemoryColumns&) = delete;
  Footprint read() const;  // zeros where the system does not say

 private:
  int descriptor_;
};

// Asked before each load and call whether it still fits: the process ends in our error, not by the system's hand.
class MemoryGuard {
 public:
  explicit MemoryGuard(std::optional<int64_t> limit_bytes) : limit_(limit_bytes) {}

  // Throws BudgetExceeded if `subject`, about to add so many bytes, would go over the limit. While the last reading left more
  // than twice the room that was asked for since, it is taken again only once a millisecond.
  void ask(int64_t bytes_to_add, const std::string& subject) {
    asked_ += bytes_to_add;
    const bool ample = !limit_ || (read_once_ && last_ + 2 * asked_ <= *limit_);
    if (ample && std::chrono::steady_clock::now() < next_reading_) return;
    hold(bytes_to_add, subject);
  }

  // Takes the footprint now into the peak. To be called before memory is given back.
  int64_t observe();

  int64_t peak() const { return peak_; }  // since it was made
  void begin_step() {
    step_peak_ = {};
    observe();
  }
  const Footprint& step_peak() const { return step_peak_; }  // all columns at the highest reading since `begin_step`
  std::optional<int64_t> limit() const { return limit_; }
  const MemoryColumns& columns() const { return columns_; }

 private:
  void hold(int64_t bytes_to_add, const std::string& subject);

  MemoryColumns columns_;
  std::optional<int64_t> limit_;
  int64_t peak_ = 0;
  Footprint step_peak_;
  int64_t last_ = 0, asked_ = 0;  // footprint when it was last read, and what was asked for since
  bool read_once_ = false;
  std::chrono::steady_clock::time_point next_reading_{};
};

// Pages of mapped files that were written and are not yet on the disk (1 to 30 ms): for reports.
int64_t dirty_mapped_bytes();

struct Storage {  // what this process has caused so far, in bytes
  int64_t read = 0, written = 0;
};
Storage storage_bytes();

// Gives freed memory that malloc holds back to the system; no effect outside glibc.
void release_free_memory();
// Makes glibc give freed blocks back at once, for a process that is ours alone; no effect outside glibc.
void steady_malloc();

std::string megabytes(int64_t bytes);  // "12.3 MB"

}  // namespace bespoke
