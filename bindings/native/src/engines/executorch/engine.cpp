// SPDX-License-Identifier: Apache-2.0
// ExecuTorch behind the engine table: one Program and Method for each graph, all over the scratch that the core hands out, so that
// planned buffers exist once and not once a graph. Operands and results are the caller's memory, never copied.
#include "engines/executorch/engine.h"

#include <cstdio>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <executorch/extension/data_loader/buffer_data_loader.h>
#include <executorch/extension/memory_allocator/malloc_memory_allocator.h>
#include <executorch/runtime/executor/method.h>
#include <executorch/runtime/executor/program.h>
#include <executorch/runtime/platform/runtime.h>

namespace executorch::extension::threadpool {  // the wheel ships the library without its header
class ThreadPool {
 public:
  bool _unsafe_reset_threadpool(uint32_t count);
};
ThreadPool* get_threadpool();
}  // namespace executorch::extension::threadpool

namespace bespoke {
namespace {

namespace rt = executorch::runtime;
using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using executorch::aten::TensorImpl;

constexpr const char* kMethod = "forward";
constexpr const char* kReserve = "reserve";  // makes XNNPACK's workspace as large as `forward` needs it, in one growth
constexpr size_t kAlignment = 64;

struct Failure {
  std::string text;
  int code = 1;
};

void check(rt::Error error, const char* what) {
  if (error != rt::Error::Ok) {
    char text[160];
    std::snprintf(text, sizeof text, "ExecuTorch could not %s (error 0x%x)", what, static_cast<unsigned>(error));
    throw Failure{text, error == rt::Error::MemoryAllocationFailed ? BESPOKE_ENGINE_NO_MEMORY : 1};
  }
}

template <class T>
T take(rt::Result<T> result, const char* what) {  // Result::get() of an error aborts the process
  check(result.error(), what);
  return std::move(result.get());
}

// A tensor whose memory is set anew for each run; ExecuTorch keeps pointers to its sizes.
struct Operand {
  std::vector<TensorImpl::SizesType> sizes;
  std::vector<TensorImpl::DimOrderType> order;
  std::unique_ptr<TensorImpl> tensor;

  explicit Operand(const rt::TensorInfo& info)
      : sizes(info.sizes().begin(), info.sizes().end()), order(info.dim_order().begin(), info.dim_order().end()) {
    tensor = std::make_unique<TensorImpl>(info.scalar_type(), static_cast<ssize_t>(sizes.size()), sizes.data(), nullptr, order.data());
  }
};

class Program {
 public:
  Program(const void* artifact, size_t size, uint8_t* scratch, size_t scratch_size)
      : loader_(artifact, size),
        program_(take(rt::Program::load(&loader_, rt::Program::Verification::InternalConsistency), "read the program")) {
    auto meta = take(program_.method_meta(kMethod), "find the program's method");
    size_t used = 0;
    for (size_t i = 0; i < meta.num_memory_planned_buffers(); i++) {
      const auto bytes = static_cast<size_t>(take(meta.memory_planned_buffer_size(i), "read a planned buffer"));
      if (bytes > scratch_size - used) throw Failure{"the program plans more memory than its artifact says"};
      planned_.push_back({scratch + used, bytes});
      used = std::min(scratch_size, (used + bytes + kAlignment - 1) / kAlignment * kAlignment);
    }
    memory_ = std::make_unique<rt::HierarchicalAllocator>(rt::Span<rt::Span<uint8_t>>(planned_.data(), planned_.size()));
    temporary_ = std::make_unique<rt::MemoryAllocator>(static_cast<uint32_t>(scratch_size - used), scratch + used);
    manager_ = std::make_unique<rt::MemoryManager>(&structures_, memory_.get(), temporary_.get());
    for (size_t i = 0; i < meta.num_inputs(); i++) operands_.emplace_back(take(meta.input_tensor_meta(i), "read an operand"));
    method_ = std::make_unique<rt::Method>(take(program_.load_method(kMethod, manager_.get()), "load the method"));
    if (program_.method_meta(kReserve).ok()) reserve();
  }

  void run(const bespoke_tensor* operands, size_t operand_count, const bespoke_tensor* results, size_t result_count) {
    if (operand_count != operands_.size() || result_count != method_->outputs_size()) throw Failure{"the program has another signature"};
    for (size_t i = 0; i < operand_count; i++) {
      operands_[i].tensor->set_data(operands[i].data);
      check(method_->set_input(rt::EValue(Tensor(operands_[i].tensor.get())), i), "take an operand");
    }
    for (size_t i = 0; i < result_count; i++) {
      const auto bytes = method_->get_output(i).toTensor().nbytes();
      check(method_->set_output_data_ptr(results[i].data, bytes, i), "take a result's place");
    }
    check(method_->execute(), "run the method");
  }

 private:
  // From one number to one number: the workspace stays for as long as `forward` is loaded.
  void reserve() {
    executorch::extension::MallocMemoryAllocator structures;
    rt::HierarchicalAllocator nothing({});
    rt::MemoryManager manager(&structures, &nothing, temporary_.get());
    rt::Method method = take(program_.load_method(kReserve, &manager), "load the reserving method");
    alignas(kAlignment) float given[kAlignment] = {}, result[kAlignment];  // XNNPACK may read 128 bytes past an operand
    if (method.inputs_size() != 1 || method.outputs_size() != 1) throw Failure{"the reserving method has another signature"};
    Operand operand(take(take(program_.method_meta(kReserve), "find the reserving method").input_tensor_meta(0), "read its operand"));
    if (operand.tensor->nbytes() != sizeof(float)) throw Failure{"the reserving method has another signature"};
    operand.tensor->set_data(given);
    check(method.set_input(rt::EValue(Tensor(operand.tensor.get())), 0), "take an operand");
    check(method.set_output_data_ptr(result, sizeof(float), 0), "take a result's place");
    check(method.execute(), "reserve memory");
  }

  executorch::extension::BufferDataLoader loader_;
  rt::Program program_;
  std::vector<rt::Span<uint8_t>> planned_;
  std::unique_ptr<rt::HierarchicalAllocator> memory_;
  std::unique_ptr<rt::MemoryAllocator> temporary_;
  executorch::extension::MallocMemoryAllocator structures_;
  std::unique_ptr<rt::MemoryManager> manager_;
  std::vector<Operand> operands_;
  std::unique_ptr<rt::Method> method_;
};

template <class F>
int guarded(char* message, size_t size, F body) {
  try {
    body();
    return 0;
  } catch (const Failure& failure) {
    std::snprintf(message, size, "%s", failure.text.c_str());
    return failure.code;
  } catch (const std::bad_alloc&) {
    std::snprintf(message, size, "no room for an allocation");
    return BESPOKE_ENGINE_NO_MEMORY;
  } catch (const std::exception& error) {
    std::snprintf(message, size, "%s", error.what());
  }
  return 1;
}

int open(void*, const void* artifact, size_t size, void* scratch, size_t scratch_size, void** program, char* message, size_t message_size) {
  return guarded(message, message_size,
                 [&] { *program = new Program(artifact, size, static_cast<uint8_t*>(scratch), scratch_size); });
}

int run(void*, void* program, const bespoke_tensor* operands, size_t operand_count, const bespoke_tensor* results,
        size_t result_count, char* message, size_t message_size) {
  return guarded(message, message_size,
                 [&] { static_cast<Program*>(program)->run(operands, operand_count, results, result_count); });
}

void close(void*, void* program) { delete static_cast<Program*>(program); }

void destroy(void*) {}

}  // namespace

bespoke_engine executorch_engine(int threads) {
  rt::runtime_init();
  if (threads > 0) executorch::extension::threadpool::get_threadpool()->_unsafe_reset_threadpool(static_cast<uint32_t>(threads));
  return {sizeof(bespoke_engine), "executorch", nullptr, open, run, close, destroy};
}

}  // namespace bespoke
