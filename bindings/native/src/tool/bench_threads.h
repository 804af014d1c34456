// SPDX-License-Identifier: Apache-2.0
// Threads that work on one product, as those of an engine do. They wait for the next product awake for a while, since waking one takes
// longer than a small product.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/int4.h"

namespace bespoke {

class BenchThreads {
 public:
  explicit BenchThreads(size_t count);  // with the calling one
  ~BenchThreads();
  BenchThreads(const BenchThreads&) = delete;
  BenchThreads& operator=(const BenchThreads&) = delete;
  kernels::Parallel parallel() { return {run, this, threads_.size() + 1}; }

 private:
  static void run(void* pool, size_t tasks, void (*task)(void*, size_t), void* context);
  void serve();
  void take();

  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<uint64_t> round_{1};  // 0 is the end
  std::atomic<size_t> next_{0}, busy_{0};
  size_t tasks_ = 0;
  void (*task_)(void*, size_t) = nullptr;
  void* context_ = nullptr;
};

}  // namespace bespoke
