// SPDX-License-Identifier: Apache-2.0
#include "exec/memory_guard.h"

#include <algorithm>
#include <cstdio>

#include "error.h"

namespace bespoke {

namespace {

constexpr auto kReadEvery = std::chrono::milliseconds(1);

}  // namespace

int64_t MemoryGuard::observe() {
  Footprint now = columns_.read();
  now.elsewhere = engine_;
  last_ = now.total();
  asked_ = 0;
  read_once_ = true;
  next_reading_ = std::chrono::steady_clock::now() + kReadEvery;
  peak_ = std::max(peak_, last_);
  if (last_ >= step_peak_.total()) step_peak_ = now;
  return last_;
}

void MemoryGuard::hold(int64_t bytes_to_add, const std::string& subject) {
  int64_t held = observe();
  asked_ = bytes_to_add;
  const int64_t limit = limits_.memory_bytes();
  if (limit < 0 || held + bytes_to_add <= limit) return;
  release_free_memory();  // freed memory that malloc still holds must not refuse what would fit
  held = observe();
  asked_ = bytes_to_add;
  if (held + bytes_to_add <= limit) return;
  const int64_t idle = limits_.idle_bytes;
  const std::string over = idle ? ", " + megabytes(limit - idle) + " over what it held before" : "";
  throw Error(Kind::Budget, subject, megabytes(held) + " held by the process and " + megabytes(bytes_to_add) + " more to come",
              "at most " + megabytes(limit) + " together" + over,
              "Raise the memory budget, or build with shorter sequences, a lower rank or a smaller batch");
}

int64_t footprint_now() { return MemoryColumns().read().total(); }

std::string megabytes(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MB", static_cast<double>(bytes) / 1e6);
  return text;
}

}  // namespace bespoke
