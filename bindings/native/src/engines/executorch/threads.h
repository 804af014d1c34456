// SPDX-License-Identifier: Apache-2.0
// ExecuTorch's thread pool: the wheel ships the library without its header.
#pragma once

#include <executorch/runtime/core/function_ref.h>

#include <cstddef>
#include <cstdint>

namespace executorch::extension::threadpool {
class ThreadPool {
 public:
  size_t get_thread_count() const;
  void run(runtime::FunctionRef<void(size_t)> task, size_t count);
  bool _unsafe_reset_threadpool(uint32_t count);
};
ThreadPool* get_threadpool();
}  // namespace executorch::extension::threadpool

namespace bespoke {

// Of the pool's threads, how many our operators use in the run that this thread makes; 0: all. ExecuTorch has no room for it
// in a call.
inline thread_local size_t threads_of_run = 0;

// task(shared, i) once for each i below `tasks`, on the threads of `pool`, a ThreadPool.
inline void run_on_pool(void* pool, size_t tasks, void (*task)(void* shared, size_t index), void* shared) {
  static_cast<executorch::extension::threadpool::ThreadPool*>(pool)->run([=](size_t index) { task(shared, index); }, tasks);
}

}  // namespace bespoke
