// SPDX-License-Identifier: Apache-2.0
#include "tool/bench_threads.h"

namespace bespoke {

namespace {

constexpr int kSpins = 20000;  // yields before a thread sleeps

}  // namespace

BenchThreads::BenchThreads(size_t count) {
  for (size_t i = 1; i < count; i++) threads_.emplace_back([this] { serve(); });
}

BenchThreads::~BenchThreads() {
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    round_ = 0;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void BenchThreads::run(void* pool, size_t tasks, void (*task)(void*, size_t), void* context) {
  BenchThreads& self = *static_cast<BenchThreads*>(pool);
  {
    const std::lock_guard<std::mutex> hold(self.mutex_);
    self.tasks_ = tasks, self.task_ = task, self.context_ = context, self.next_ = 0, self.busy_ = self.threads_.size();
    self.round_++;
  }
  self.changed_.notify_all();
  self.take();
  while (self.busy_ > 0) std::this_thread::yield();
}

void BenchThreads::serve() {
  for (uint64_t seen = 1;; seen++) {
    for (int spin = 0; spin < kSpins && round_ == seen; spin++) std::this_thread::yield();
    {
      std::unique_lock<std::mutex> hold(mutex_);
      changed_.wait(hold, [&] { return round_ != seen; });
    }
    if (round_ == 0) return;
    take();
    busy_--;
  }
}

void BenchThreads::take() {
  for (size_t i; (i = next_++) < tasks_;) task_(context_, i);
}

}  // namespace bespoke
