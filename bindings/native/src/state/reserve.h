// SPDX-License-Identifier: Apache-2.0
// A file of a state folder that holds room on the disk, so that a state on a full disk can still be opened, listed and forgotten from: each
// of these needs some room for SQLite's log and its index.
#pragma once

#include <string>

#include "error.h"

namespace bespoke {

extern const char* const kReserveFile;  // "reserve"

void keep_reserve(const std::string& folder) noexcept;  // makes it where there is none and the disk has room; else it is made another time
[[nodiscard]] bool spend_reserve(const std::string& folder) noexcept;  // false: there was none

// What `work` gives, done again with the reserve's room where the disk is full.
template <class Work>
auto with_reserve(const std::string& folder, Work work) {
  try {
    return work();
  } catch (const Error& error) {
    if (error.kind != Kind::DiskFull || !spend_reserve(folder)) throw;
  }
  return work();
}

}  // namespace bespoke
