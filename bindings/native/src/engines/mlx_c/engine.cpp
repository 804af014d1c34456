// SPDX-License-Identifier: Apache-2.0
// MLX behind the engine table over mlx-c, the C interface that mlx-swift is built on: for apps that link mlx-swift, and with it MLX once.
// The same as engines/mlx, but for two things that mlx-c cannot do: nobody sees the steps of a program, so they run as MLX schedules
// them; and what a program takes is found out by its first run.
//
// It was compiled against the headers in third_party/mlx-c, of the commit that mlx-swift 0.31.3 to 0.31.6 have as their submodule, and run
// by hand on Linux over that commit's sources. No app was linked to it, and nothing of Apple's has run it.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engines/failure.h"
#include "engines/mlx/program_file.h"
#include "engines/module.h"
#include <mlx/c/array.h>
#include <mlx/c/error.h>
#include <mlx/c/export.h>
#include <mlx/c/memory.h>
#include <mlx/c/string.h>
#include <mlx/c/transforms.h>
#include <mlx/c/vector.h>
#include <mlx/c/version.h>

namespace bespoke {
namespace {

constexpr const char* kVersion = "0.31.1";  // of MLX, that mlx-swift builds
// Of bespoke.h's dtypes, in their order.
constexpr mlx_dtype kTypes[] = {MLX_FLOAT32, MLX_FLOAT16, MLX_UINT8, MLX_INT64, MLX_INT32};

std::string& last_error() {
  thread_local std::string text;
  return text;
}

// mlx-c reports by a handler and then returns a status; its own handler ends the process. This one replaces that of mlx-swift, too.
void keep_error(const char* message, void*) { last_error() = message; }

void check(int status) {
  if (status) throw Failure{std::exchange(last_error(), {})};
}

// Handles of mlx-c, freed.
struct Array {
  mlx_array handle = mlx_array_new();
  Array() = default;
  Array(const Array&) = delete;
  ~Array() { mlx_array_free(handle); }
};
struct Arrays {
  mlx_vector_array handle = mlx_vector_array_new();
  Arrays() = default;
  Arrays(const Arrays&) = delete;
  ~Arrays() { mlx_vector_array_free(handle); }
};

size_t peak_memory() {
  size_t bytes = 0;
  check(mlx_get_peak_memory(&bytes));
  return bytes;
}

size_t active_memory() {
  size_t bytes = 0;
  check(mlx_get_active_memory(&bytes));
  return bytes;
}

std::string version() {
  mlx_string text = mlx_string_new();
  const int failed = mlx_version(&text);
  const std::string found = failed ? "" : mlx_string_data(text);
  mlx_string_free(text);
  return found;
}

mlx_dtype type_of(const bespoke_tensor& tensor) {
  if (tensor.dtype < 0 || static_cast<size_t>(tensor.dtype) >= std::size(kTypes))
    throw Failure{"element type " + std::to_string(tensor.dtype)};
  return kTypes[tensor.dtype];
}

class Program {
 public:
  explicit Program(const bespoke_artifact& artifact) {
    check_version(artifact, kVersion);
    const UnnamedFile file(artifact.bytes, artifact.size);
    handle_ = mlx_imported_function_new(file.path().c_str());
    if (!handle_.ctx) throw Failure{std::exchange(last_error(), {})};
  }
  ~Program() { mlx_imported_function_free(handle_); }
  Program(const Program&) = delete;

  void run(const bespoke_tensor* const* operands, size_t operand_count, const bespoke_tensor* const* results, size_t result_count) const {
    Arrays made;
    {
      Arrays taken;  // gone before anything is computed: a handle would keep an operand past its last use
      for (size_t i = 0; i < operand_count; i++) append(taken, *operands[i]);
      if (mlx_imported_function_apply(&made.handle, handle_, taken.handle))
        throw Failure{"other operands: " + std::exchange(last_error(), {}), BESPOKE_ENGINE_OTHER_SIGNATURE};
    }
    if (mlx_vector_array_size(made.handle) != result_count)
      throw Failure{std::to_string(mlx_vector_array_size(made.handle)) + " results", BESPOKE_ENGINE_OTHER_SIGNATURE};
    check(mlx_eval(made.handle));
    for (size_t i = 0; i < result_count; i++) {
      Array result;
      check(mlx_vector_array_get(&result.handle, made.handle, i));
      copy_out(result.handle, *results[i]);
    }
  }

 private:
  static void append(Arrays& taken, const bespoke_tensor& tensor) {
    const std::vector<int> shape(tensor.shape, tensor.shape + tensor.rank);
    const mlx_array copy = mlx_array_new_data(tensor.data, shape.data(), tensor.rank, type_of(tensor));
    const int failed = copy.ctx ? mlx_vector_array_append_value(taken.handle, copy) : 1;
    mlx_array_free(copy);
    check(failed);
  }

  static void copy_out(mlx_array result, const bespoke_tensor& to) {
    const std::vector<int> shape(to.shape, to.shape + to.rank);
    if (mlx_array_ndim(result) != shape.size() || !std::equal(shape.begin(), shape.end(), mlx_array_shape(result)) ||
        mlx_array_dtype(result) != type_of(to))
      throw Failure{"another result than the artifact's", BESPOKE_ENGINE_OTHER_SIGNATURE};
    // Whatever its type: the pointer is to the first element, and strides are in elements.
    const auto* from = reinterpret_cast<const char*>(mlx_array_data_uint8(result));
    const auto* strides = reinterpret_cast<const int64_t*>(mlx_array_strides(result));
    const size_t size = mlx_array_itemsize(result), count = mlx_array_size(result);
    auto* at = static_cast<char*>(to.data);
    std::vector<int> index(shape.size(), 0);
    for (size_t done = 0; done < count; done++, at += size) {
      int64_t offset = 0;
      for (size_t d = 0; d < shape.size(); d++) offset += index[d] * strides[d];
      std::memcpy(at, from + offset * static_cast<int64_t>(size), size);
      for (size_t d = shape.size(); d-- > 0 && ++index[d] == shape[d];) index[d] = 0;
    }
  }

  mlx_imported_function handle_{};
};

struct Context {
  size_t peak = 0;  // since it was last asked for
};

int open(void*, const bespoke_artifact* artifact, void** program, char* message, size_t message_size) {
  return guarded(message, message_size, [&] { *program = new Program(*artifact); });
}

int run(void* context, void* program, const bespoke_tensor* const* operands, size_t operand_count, const bespoke_tensor* const* results,
        size_t result_count, char* message, size_t message_size) {
  return guarded(message, message_size, [&] {
    const size_t before = active_memory();
    check(mlx_reset_peak_memory());
    static_cast<Program*>(program)->run(operands, operand_count, results, result_count);
    check(mlx_clear_cache());
    auto* own = static_cast<Context*>(context);
    own->peak = std::max(own->peak, std::max(peak_memory(), before) - before);
  });
}

void close(void*, void* program) { delete static_cast<Program*>(program); }
void destroy(void* context) { delete static_cast<Context*>(context); }
int64_t peak_bytes(void* context) { return static_cast<int64_t>(std::exchange(static_cast<Context*>(context)->peak, size_t{0})); }

}  // namespace
}  // namespace bespoke

int bespoke_engine_module(bespoke_engine* engine, char* message, size_t message_size) {
  return bespoke::guarded(message, message_size, [&] {
    mlx_set_error_handler(bespoke::keep_error, nullptr, nullptr);
    if (bespoke::version() != bespoke::kVersion)
      throw bespoke::Failure{"MLX " + bespoke::version() + " where " + bespoke::kVersion + " is expected"};
    *engine = {};
    engine->struct_size = sizeof *engine;
    engine->target = "mlx";
    engine->open = bespoke::open, engine->run = bespoke::run, engine->close = bespoke::close, engine->destroy = bespoke::destroy;
    engine->peak_bytes = bespoke::peak_bytes;
    engine->context = new bespoke::Context;
  });
}
