// SPDX-License-Identifier: Apache-2.0
#include "platform/fork.h"

#include <pthread.h>

#include <set>

namespace bespoke {

namespace {

struct Shared {  // never destroyed: a fork may happen while the process ends
  Mutex mutex;
  std::set<int> descriptors GUARDED_BY(mutex);
};

Shared& shared() {
  static Shared* const made = [] {
    pthread_atfork([]() UNCHECKED_LOCKS { shared().mutex.lock(); }, []() UNCHECKED_LOCKS { shared().mutex.unlock(); },
                   []() UNCHECKED_LOCKS {
                     for (const int descriptor : shared().descriptors) close(descriptor);
                     shared().descriptors.clear();
                     shared().mutex.unlock();
                   });
    return new Shared;
  }();
  return *made;
}

}  // namespace

Mutex& held_over_forks() { return shared().mutex; }

ClosedInForks::ClosedInForks(int descriptor) : descriptor_(descriptor) {
  const MutexLock held(shared().mutex);
  shared().descriptors.insert(descriptor);
}

ClosedInForks::~ClosedInForks() {
  const MutexLock held(shared().mutex);
  shared().descriptors.erase(descriptor_);
}

}  // namespace bespoke
