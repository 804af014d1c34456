// SPDX-License-Identifier: Apache-2.0
// Files mapped read-only with a page of zeros behind them: XNNPACK reads up to 128 bytes past an operand, and an adapter may end where
// its file's last page does.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>

namespace bespoke {

constexpr size_t kReadBehind = 128;  // bytes that an engine may read past an operand

inline size_t whole_pages(size_t length) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (length + page - 1) / page * page;
}

// MAP_FAILED and errno where it cannot be. `offset` is a multiple of the page size.
inline void* map_file(int descriptor, size_t length, off_t offset) {
  const size_t whole = whole_pages(length) + whole_pages(kReadBehind);
  void* place = mmap(nullptr, whole, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) return place;
  if (mmap(place, length, PROT_READ, MAP_SHARED | MAP_FIXED, descriptor, offset) != MAP_FAILED) return place;
  munmap(place, whole);
  return MAP_FAILED;
}

inline void unmap_file(void* place, size_t length) { munmap(place, whole_pages(length) + whole_pages(kReadBehind)); }

}  // namespace bespoke
