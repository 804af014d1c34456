// SPDX-License-Identifier: Apache-2.0
#include "platform/fork.h"

#include <pthread.h>

#include <set>

namespace bespoke {

namespace {

struct Shared {  // never destroyed: a fork may happen while the process ends
  std::mutex mutex;
  std::set<int> descriptors;
};

Shared& shared() {
  static Shared* const made = [] {
    pthread_atfork([] { shared().mutex.lock(); }, [] { shared().mutex.unlock(); },
                   [] {
                     for (const int descriptor : shared().descriptors) close(descriptor);
                     shared().descriptors.clear();
                     shared().mutex.unlock();
                   });
    return new Shared;
  }();
  return *made;
}

}  // namespace

std::mutex& held_over_forks() { return shared().mutex; }

ClosedInForks::ClosedInForks(int descriptor) : descriptor_(descriptor) {
  const std::lock_guard<std::mutex> held(held_over_forks());
  shared().descriptors.insert(descriptor);
}

ClosedInForks::~ClosedInForks() {
  const std::lock_guard<std::mutex> held(held_over_forks());
  shared().descriptors.erase(descriptor_);
}

}  // namespace bespoke
