// SPDX-License-Identifier: Apache-2.0
// The pool of threads, which all engines of the process share. Programs keep pointers into it: it is replaced only while none is open.
#pragma once

#include <cstddef>
#include <cstdint>

#include "locks.h"

namespace bespoke {

class SharedPool {
 public:
  // Adds an engine that wants so many threads; 0: as many as there are. Returns how many it has. Throws Error where another engine has
  // asked for another number.
  size_t join(int threads);
  void leave();

  // Between the two the pool stays as it is.
  void enter();
  void exit();

  // Makes the pool so large, unless somebody uses it or another engine is there. Returns how large it is.
  size_t resize(size_t threads);

 private:
  Mutex lock_;
  size_t engines_ GUARDED_BY(lock_) = 0;
  size_t users_ GUARDED_BY(lock_) = 0;    // programs that are open, and work outside of them
  uint32_t first_ GUARDED_BY(lock_) = 0;  // threads that it came with
  uint32_t size_ GUARDED_BY(lock_) = 0;   // that the engines have asked for
};

SharedPool& shared_pool();

struct InPool {  // while it lives, the pool stays as it is
  InPool() { shared_pool().enter(); }
  ~InPool() { shared_pool().exit(); }
  InPool(const InPool&) = delete;
};

}  // namespace bespoke
