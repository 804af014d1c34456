// SPDX-License-Identifier: Apache-2.0
#include "engines/executorch/shared_pool.h"

#include <algorithm>
#include <new>
#include <string>

#include "engines/executorch/threads.h"
#include "error.h"
#include "platform/cores.h"

namespace bespoke {

using executorch::extension::threadpool::get_threadpool;

size_t SharedPool::join(int threads) {
  const MutexLock held(lock_);
  auto* pool = get_threadpool();
  if (!pool) throw std::bad_alloc();
  if (!first_) first_ = size_ = static_cast<uint32_t>(pool->get_thread_count());
  uint32_t wanted = size_;
  if (threads > 0)
    wanted = static_cast<uint32_t>(threads);
  else if (!engines_)
    wanted = std::min(first_, static_cast<uint32_t>(usable_threads(read_cores())));
  if (wanted != size_ && engines_)
    throw Error(Kind::Config, setting("threads"), std::to_string(wanted),
                "0, or the " + std::to_string(size_) + " of the model that is open: the threads are the process's",
                "Open all models of a process with the same number, or close the others first");
  if (!engines_) pool->_unsafe_reset_threadpool(wanted);
  size_ = wanted;
  engines_++;
  return size_;
}

void SharedPool::leave() {
  const MutexLock held(lock_);
  engines_--;
}

void SharedPool::enter() {
  const MutexLock held(lock_);
  users_++;
}

void SharedPool::exit() {
  const MutexLock held(lock_);
  users_--;
}

size_t SharedPool::resize(size_t threads) {
  const MutexLock held(lock_);
  auto* pool = get_threadpool();
  if (!users_ && engines_ == 1) pool->_unsafe_reset_threadpool(static_cast<uint32_t>(threads));
  return pool->get_thread_count();
}

SharedPool& shared_pool() {
  static SharedPool one;
  return one;
}

}  // namespace bespoke
