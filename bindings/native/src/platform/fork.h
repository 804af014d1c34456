// SPDX-License-Identifier: Apache-2.0
// What a fork of this process must not use. A fork has a copy of the memory, of one thread and of all descriptors, and shares what the
// descriptors stand for. It has none of the locks that SQLite takes with fcntl, and copies of those that flock gives.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include "locks.h"

namespace bespoke {

class OwnProcess {  // the process in which it was made
 public:
  pid_t number() const { return number_; }
  bool is_this() const { return getpid() == number_; }

 private:
  pid_t number_ = getpid();
};

Mutex& held_over_forks();  // what it guards is whole in every fork

// A descriptor of this process alone: a fork closes its copy at once. flock's lock lasts as long as any copy of its descriptor, so a fork
// would keep the lock of a parent that was killed.
class ClosedInForks {
 public:
  explicit ClosedInForks(int descriptor);  // of which the caller stays the owner, and which it closes after this has gone
  ~ClosedInForks();
  ClosedInForks(const ClosedInForks&) = delete;
  ClosedInForks& operator=(const ClosedInForks&) = delete;

 private:
  int descriptor_;
};

}  // namespace bespoke
