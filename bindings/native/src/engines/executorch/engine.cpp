// SPDX-License-Identifier: Apache-2.0
// ExecuTorch behind the engine table: one Program and Method for each graph, all over the workspace that the core hands out, so that
// planned buffers exist once and not once a graph. Operands and results are the caller's memory, never copied.
#include "engines/executorch/engine.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <executorch/extension/memory_allocator/malloc_memory_allocator.h>
#include <executorch/runtime/backend/backend_options_map.h>
#include <executorch/runtime/executor/method.h>
#include <executorch/runtime/executor/program.h>
#include <executorch/runtime/platform/platform.h>
#include <executorch/runtime/platform/runtime.h>

#include "engines/executorch/npu.h"
#include "engines/executorch/packed_weights.h"
#include "engines/executorch/shared_pool.h"
#include "engines/executorch/threads.h"
#include "engines/failure.h"
#include "error.h"
#include "log.h"
#include "platform/cores.h"

namespace bespoke {
namespace {

namespace rt = executorch::runtime;
using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using executorch::aten::TensorImpl;

constexpr const char* kMethod = "forward";
constexpr const char* kXnnpack = "XnnpackBackend";
constexpr const char* kReserve = "reserve";  // makes XNNPACK's workspace as large as `forward` needs it, in one growth
constexpr size_t kAlignment = 64;
constexpr size_t kMostBuffers = 64;  // planned ones; ours have one
// Of bespoke.h's dtypes, in their order.
constexpr ScalarType kTypes[] = {ScalarType::Float, ScalarType::Half, ScalarType::Byte, ScalarType::Long, ScalarType::Int};
constexpr const char* kTypeNames[] = {"float32", "float16", "uint8", "int64", "int32"};

void check(rt::Error error, const char* what) {
  if (error != rt::Error::Ok) {
    char text[160];
    std::snprintf(text, sizeof text, "ExecuTorch could not %s (error 0x%x)", what, static_cast<unsigned>(error));
    throw Failure{text, error == rt::Error::MemoryAllocationFailed ? BESPOKE_ENGINE_NO_MEMORY : kOther};
  }
}

template <class T>
T take(rt::Result<T> result, const char* what) {  // Result::get() of an error aborts the process
  check(result.error(), what);
  return std::move(result.get());
}

// What a program takes or gives, as its file says.
struct Spec {
  ScalarType type;
  std::vector<TensorImpl::SizesType> sizes;
  std::vector<TensorImpl::DimOrderType> order;

  explicit Spec(const rt::TensorInfo& info)
      : type(info.scalar_type()), sizes(info.sizes().begin(), info.sizes().end()), order(info.dim_order().begin(), info.dim_order().end()) {
  }

  bool is_of(const bespoke_tensor& tensor) const {  // of the artifact
    if (tensor.dtype < 0 || static_cast<size_t>(tensor.dtype) >= std::size(kTypes) || type != kTypes[tensor.dtype]) return false;
    return std::equal(sizes.begin(), sizes.end(), tensor.shape, tensor.shape + tensor.rank) && in_order();
  }
  bool in_order() const {
    for (size_t i = 0; i < order.size(); i++)
      if (order[i] != i) return false;
    return order.size() == sizes.size();
  }
};

std::string shown(const Spec& spec) {
  const auto* known = std::find(std::begin(kTypes), std::end(kTypes), spec.type);
  std::string out = std::string(known == std::end(kTypes) ? "another dtype" : kTypeNames[known - std::begin(kTypes)]) + " (";
  for (size_t i = 0; i < spec.sizes.size(); i++) out += (i ? ", " : "") + std::to_string(spec.sizes[i]);
  return out + (spec.in_order() ? ")" : ") in another order of dimensions");
}

// Before anything is loaded: a program knows its own sizes, and would use them on whatever memory it is given.
void check_signature(const char* what, const std::vector<Spec>& specs, const bespoke_tensor* const* tensors, size_t count) {
  if (specs.size() != count) throw Failure{std::to_string(specs.size()) + " " + what + "s", BESPOKE_ENGINE_OTHER_SIGNATURE};
  for (size_t i = 0; i < count; i++)
    if (!specs[i].is_of(*tensors[i]))
      throw Failure{std::string(what) + " " + std::to_string(i) + " of " + shown(specs[i]), BESPOKE_ENGINE_OTHER_SIGNATURE};
}

// Its memory is set again for each run. ExecuTorch keeps pointers to the sizes of `spec`.
std::unique_ptr<TensorImpl> tensor_of(Spec& spec) {
  return std::make_unique<TensorImpl>(spec.type, static_cast<ssize_t>(spec.sizes.size()), spec.sizes.data(), nullptr, spec.order.data());
}

// What ExecuTorch keeps of a loaded program. It fills some of its lists without asking whether their memory was given, and its own
// assertion then ends the process (method.cpp, parse_values). So it never sees that an allocation failed: the memory comes from a
// reserve that was taken before, and loaded() throws. A reserve that is not needed is never written, so it has no pages.
class Structures : public executorch::extension::MallocMemoryAllocator {
 public:
  // The structures of our programs take up to 1.7 times their file.
  explicit Structures(size_t file_bytes)
      : reserve_(new uint8_t[2 * file_bytes + 4096]), rest_(static_cast<uint32_t>(2 * file_bytes + 4096), reserve_.get()) {}

  void* allocate(size_t size, size_t alignment) override {
    if (void* memory = MallocMemoryAllocator::allocate(size, alignment)) return memory;
    fell_short_ = true;
    return reserve_ ? rest_.allocate(size, alignment) : nullptr;
  }
  void loaded() {  // std::bad_alloc where an allocation failed
    if (fell_short_) throw std::bad_alloc();
    reserve_.reset();
  }

 private:
  std::unique_ptr<uint8_t[]> reserve_;
  rt::MemoryAllocator rest_;
  bool fell_short_ = false;
};

class LoadedProgram {
 public:
  explicit LoadedProgram(const bespoke_artifact& artifact)
      : loader_(artifact), program_(take(rt::Program::load(&loader_, rt::Program::Verification::InternalConsistency), "read the program")),
        structures_(artifact.size) {
    auto meta = take(program_.method_meta(kMethod), "find the program's method");
    const bool npu = meta.uses_backend(kNpu);
    if (npu) need_npu();
    for (size_t i = 0; i < meta.num_inputs(); i++) takes_.emplace_back(take(meta.input_tensor_meta(i), "read an operand"));
    for (size_t i = 0; i < meta.num_outputs(); i++) gives_.emplace_back(take(meta.output_tensor_meta(i), "read a result"));
    check_signature("operand", takes_, artifact.operands, artifact.operand_count);
    check_signature("result", gives_, artifact.results, artifact.result_count);
    auto* workspace = static_cast<uint8_t*>(artifact.workspace);
    const size_t workspace_size = artifact.workspace_bytes;
    size_t used = 0;
    for (size_t i = 0; i < meta.num_memory_planned_buffers(); i++) {
      const auto bytes = static_cast<size_t>(take(meta.memory_planned_buffer_size(i), "read a planned buffer"));
      if (bytes > workspace_size - used || planned_.size() == kMostBuffers)
        throw Failure{"the program plans more memory than its artifact says"};
      planned_.push_back({workspace + used, bytes});
      used = std::min(workspace_size, (used + bytes + kAlignment - 1) / kAlignment * kAlignment);
    }
    memory_ = std::make_unique<rt::HierarchicalAllocator>(rt::Span<rt::Span<uint8_t>>(planned_.data(), planned_.size()));
    temporary_ = std::make_unique<rt::MemoryAllocator>(static_cast<uint32_t>(workspace_size - used), workspace + used);
    manager_ = std::make_unique<rt::MemoryManager>(&structures_, memory_.get(), temporary_.get());
    for (Spec& spec : takes_) operands_.push_back(tensor_of(spec));
    try {
      load(artifact);
    } catch (Failure& failure) {
      if (npu && failure.code == kOther)  // the program is whole, as its hash says: the driver or the chip does not take it
        throw Failure{failure.text +
                          " for Qualcomm's NPU: it needs libQnnHtp.so, its stub and its skeleton where the process finds "
                          "them, and the chip that it was compiled for",
                      BESPOKE_ENGINE_UNAVAILABLE};
      throw;
    }
    structures_.loaded();
    if (has_reserve()) reserve(artifact.size);
  }

  void run(const bespoke_tensor* const* operands, const bespoke_tensor* const* results) {
    for (size_t i = 0; i < takes_.size(); i++) {
      operands_[i]->set_data(operands[i]->data);
      check(method_->set_input(rt::EValue(Tensor(operands_[i].get())), i), "take an operand");
    }
    for (size_t i = 0; i < gives_.size(); i++) {
      const auto bytes = method_->get_output(i).toTensor().nbytes();
      check(method_->set_output_data_ptr(results[i]->data, bytes, i), "take a result's place");
    }
    check(method_->execute(), "run the method");
  }

 private:
  void load(const bespoke_artifact& artifact) {
    constexpr const char* what = "load the method";
    packed_ = packed_weights(artifact);
    if (!packed_) {
      method_ = std::make_unique<rt::Method>(take(program_.load_method(kMethod, manager_.get()), what));
      return;
    }
    const MutexLock alone(packed_->loading);
    rt::BackendOptions<2> options;
    check(options.set_option("weight_cache_enabled", true), "take an option");
    check(options.set_option("packed_cache_path", packed_->path().c_str()), "take an option");
    rt::LoadBackendOptionsMap given;
    check(given.set_options(kXnnpack, options.view()), "take options");
    loader_.before_constants = [this]() REQUIRES(packed_->loading) { return packed_->take_room() == 0; };
    auto loaded = program_.load_method(kMethod, manager_.get(), nullptr, nullptr, &given);
    loader_.before_constants = nullptr;
    packed_->packed(loaded.ok());
    method_ = std::make_unique<rt::Method>(take(std::move(loaded), what));
  }

  // None for a program whose weights are operands.
  std::shared_ptr<PackedWeights> packed_weights(const bespoke_artifact& artifact) {
    const auto found = program_.get_named_data_map();
    if (!found.ok()) return nullptr;
    const rt::NamedDataMap& named = **found;
    std::vector<std::string> names;
    size_t bytes = 0;
    for (uint32_t i = 0, count = take(named.get_num_keys(), "count its constants"); i < count; i++) {
      names.emplace_back(take(named.get_key(i), "name a constant"));
      bytes += take(named.get_data(names.back()), "read a constant").size();
    }
    if (names.empty()) return nullptr;
    if (!artifact.cache)
      throw Failure{"its weights are packed into a file, and there is no folder for it: give bespoke_options.cache",
                    BESPOKE_ENGINE_UNAVAILABLE};
    auto packed = PackedWeights::in(artifact.cache, std::move(names), bytes);
    if (packed->path().size() >= rt::kMaxOptionValueLength)
      throw Failure{"a path that is too long for XNNPACK: " + packed->path(), BESPOKE_ENGINE_UNAVAILABLE};
    return packed;
  }

  // Asked by its name, a method that is not there would be logged as an error.
  bool has_reserve() const {
    for (size_t i = 0; i < program_.num_methods(); i++) {
      const auto name = program_.get_method_name(i);
      if (name.ok() && std::strcmp(*name, kReserve) == 0) return true;
    }
    return false;
  }

  // From one number to one number: the workspace stays for as long as `forward` is loaded.
  void reserve(size_t file_bytes) {
    Structures structures(file_bytes);
    rt::HierarchicalAllocator nothing({});
    rt::MemoryManager manager(&structures, &nothing, temporary_.get());
    rt::Method method = take(program_.load_method(kReserve, &manager), "load the reserving method");
    structures.loaded();
    alignas(kAlignment) float given[kAlignment] = {}, result[kAlignment];  // XNNPACK may read 128 bytes past an operand
    if (method.inputs_size() != 1 || method.outputs_size() != 1) throw Failure{"the reserving method has another signature"};
    Spec spec(take(take(program_.method_meta(kReserve), "find the reserving method").input_tensor_meta(0), "read its operand"));
    const std::unique_ptr<TensorImpl> operand = tensor_of(spec);
    if (operand->nbytes() != sizeof(float)) throw Failure{"the reserving method has another signature"};
    operand->set_data(given);
    check(method.set_input(rt::EValue(Tensor(operand.get())), 0), "take an operand");
    check(method.set_output_data_ptr(result, sizeof(float), 0), "take a result's place");
    check(method.execute(), "reserve memory");
  }

  const InPool in_pool_;  // goes last: the method points into the pool
  ProgramBytes loader_;
  rt::Program program_;
  std::vector<rt::Span<uint8_t>> planned_;
  std::unique_ptr<rt::HierarchicalAllocator> memory_;
  std::unique_ptr<rt::MemoryAllocator> temporary_;
  Structures structures_;
  std::unique_ptr<rt::MemoryManager> manager_;
  std::shared_ptr<PackedWeights> packed_;  // goes after the method, which has it mapped
  std::vector<Spec> takes_, gives_;
  std::vector<std::unique_ptr<TensorImpl>> operands_;
  std::unique_ptr<rt::Method> method_;
};

int open(void*, const bespoke_artifact* artifact, void** program, char* message, size_t message_size) {
  return guarded(message, message_size, [&] { *program = new LoadedProgram(*artifact); });
}

// Of one engine.
struct Context {
  size_t all;      // threads that the pool has, unless it was made smaller
  size_t suited;   // of them, that our operators use where nobody has timed it
  size_t threads;  // that they use now
};

Context& of(void* context) { return *static_cast<Context*>(context); }

int run(void* context, void* program, const bespoke_tensor* const* operands, size_t, const bespoke_tensor* const* results, size_t,
        char* message, size_t message_size) {
  threads_of_run = of(context).threads;
  return guarded(message, message_size, [&] { static_cast<LoadedProgram*>(program)->run(operands, results); });
}

void close(void*, void* program) { delete static_cast<LoadedProgram*>(program); }

void destroy(void* context) {
  delete &of(context);
  shared_pool().leave();
}

void share_out(void*, size_t tasks, void (*task)(void* shared, size_t index), void* shared) {
  const InPool in_pool;
  run_on_pool(executorch::extension::threadpool::get_threadpool(), tasks, task, shared);
}

// XNNPACK's own operators use the whole pool. So it has no more threads than are wanted, where it can be replaced.
int32_t use_threads(void* context, int32_t threads) {
  Context& engine = of(context);
  const size_t wanted = threads > 0 ? std::min(static_cast<size_t>(threads), engine.all) : engine.all;
  const size_t there = shared_pool().resize(wanted);
  engine.threads = std::min(threads > 0 ? wanted : engine.suited, there);
  return static_cast<int32_t>(engine.threads);
}

// ---- what ExecuTorch has to say ---------------------------------------------------------------------------------------------------

pal_emit_log_message_method own_log = nullptr;  // ExecuTorch's

bespoke_log_level level_of(et_pal_log_level_t level) {
  return level == kDebug ? BESPOKE_LOG_DEBUG : level == kInfo ? BESPOKE_LOG_INFO : BESPOKE_LOG_ERROR;
}

void take_line(et_timestamp_t at, et_pal_log_level_t level, const char* file, const char* function, size_t line, const char* message,
               size_t size) {
  const std::string text = "ExecuTorch, " + std::string(file) + ":" + std::to_string(line) + ": " + std::string(message, size);
  if (!write_to_log(level_of(level), text.c_str())) own_log(at, level, file, function, line, message, size);
}

void take_lines() {
  static const bool once = [] {
    own_log = rt::get_pal_impl()->emit_log_message;
    rt::PalImpl ours{};
    ours.emit_log_message = take_line;
    return rt::register_pal(ours);
  }();
  (void)once;
}

}  // namespace

bespoke_engine executorch_engine(int threads) {
  take_lines();
  rt::runtime_init();
  auto context = std::make_unique<Context>();
  const size_t all = context->all = shared_pool().join(threads);
  context->suited = context->threads = threads > 0 ? all : std::min(all, static_cast<size_t>(threads_for(read_cores())));
  bespoke_engine table{};
  table.struct_size = sizeof table;
  table.target = "executorch";
  table.open = open, table.run = run, table.close = close, table.destroy = destroy;
  table.parallel = share_out, table.use_threads = use_threads;
  table.context = context.release();
  return table;
}

}  // namespace bespoke
