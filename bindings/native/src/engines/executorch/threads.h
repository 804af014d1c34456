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
