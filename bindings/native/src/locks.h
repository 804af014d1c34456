// SPDX-License-Identifier: Apache-2.0
// Mutexes that clang checks with -Wthread-safety (https://clang.llvm.org/docs/ThreadSafetyAnalysis.html): a field says which mutex guards
// it, a function says which one its caller holds. The standard library's own mutexes say nothing to it.
#pragma once

#include <mutex>

#ifdef __clang__
#define BESPOKE_LOCKS(attribute) __attribute__((attribute))
#else
#define BESPOKE_LOCKS(attribute)
#endif

#define GUARDED_BY(mutex) BESPOKE_LOCKS(guarded_by(mutex))
#define REQUIRES(mutex) BESPOKE_LOCKS(requires_capability(mutex))
#define ACQUIRE(...) BESPOKE_LOCKS(acquire_capability(__VA_ARGS__))
#define RELEASE(...) BESPOKE_LOCKS(release_capability(__VA_ARGS__))
#define UNCHECKED_LOCKS BESPOKE_LOCKS(no_thread_safety_analysis)

namespace bespoke {

class BESPOKE_LOCKS(capability("mutex")) Mutex {
 public:
  void lock() ACQUIRE() { mutex_.lock(); }
  bool try_lock() BESPOKE_LOCKS(try_acquire_capability(true)) { return mutex_.try_lock(); }
  void unlock() RELEASE() { mutex_.unlock(); }

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

class [[nodiscard]] BESPOKE_LOCKS(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : held_(mutex.mutex_) {}
  ~MutexLock() RELEASE() {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  std::unique_lock<std::mutex>& for_condition() { return held_; }  // which gives it up while it waits

 private:
  std::unique_lock<std::mutex> held_;
};

}  // namespace bespoke
