// SPDX-License-Identifier: Apache-2.0
// What memory this process takes and what it has caused on the disk, as phone systems count both.
#pragma once

#include <cstdint>

namespace bespoke {

// What a system judges a process by is anonymous, shared-memory and swapped pages: RssAnon + RssShmem + VmSwap on Linux,
// phys_footprint on Apple, which stands in `anonymous` there.
struct Footprint {  // bytes
  int64_t anonymous = 0, shmem = 0, swap = 0, file = 0;
  int64_t elsewhere = 0;  // what the system does not count, or no more: what an engine says that it held in its last run
  int64_t total() const { return anonymous + shmem + swap + elsewhere; }
};

// A reading takes 3 to 10 us and no memory. A forked child needs one of its own.
class MemoryColumns {
 public:
  MemoryColumns();
  ~MemoryColumns();
  MemoryColumns(const MemoryColumns&) = delete;
  MemoryColumns& operator=(const MemoryColumns&) = delete;
  Footprint read() const;  // zeros where the system does not say

 private:
  [[maybe_unused]] int descriptor_ = -1;  // of Linux
};

// Pages of mapped files that were written and are not yet on the disk (1 to 30 ms): for reports. 0 where the system does not say.
int64_t dirty_mapped_bytes();

struct Storage {  // what this process has caused so far, in bytes; zeros where the system does not say, as iOS
  int64_t read = 0, written = 0;
};
Storage storage_bytes();

void release_free_memory();  // gives freed memory that malloc holds back to the system, where it does
void steady_malloc();        // makes malloc give freed blocks back at once, for a process that is ours alone

}  // namespace bespoke
