// SPDX-License-Identifier: Apache-2.0
// MLX behind the engine table: `.mlxfn` programs, run on the device that their records name.
//
// Operands are copied in and results out. MLX can take memory that it does not own, but on a processor it reads the eight bytes before it
// as the buffer's size: of a value at the start of a mapping they belong to nobody. And it may write a result into an operand's memory.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engines/failure.h"
#include "engines/mlx/evaluate.h"
#include "engines/mlx/program_file.h"
#include "engines/module.h"
#include <mlx/mlx.h>

namespace bespoke {
namespace {

namespace mx = mlx::core;

// Of bespoke.h's dtypes, in their order.
const mx::Dtype kTypes[] = {mx::float32, mx::float16, mx::uint8, mx::int64, mx::int32};

struct Context {
  size_t peak = 0;  // since it was last asked for
};

mx::Shape shape_of(const bespoke_tensor& tensor) { return mx::Shape(tensor.shape, tensor.shape + tensor.rank); }

mx::Dtype type_of(const bespoke_tensor& tensor) {
  if (tensor.dtype < 0 || static_cast<size_t>(tensor.dtype) >= std::size(kTypes))
    throw Failure{"element type " + std::to_string(tensor.dtype)};
  return kTypes[tensor.dtype];
}

mx::ImportedFunction imported(const bespoke_artifact& artifact) {
  check_version(artifact, mx::version());
  const UnnamedFile file(artifact.bytes, artifact.size);
  return mx::import_function(file.path());
}

std::string shown(const mx::array& array) {
  std::string text = "a result of (";
  for (int d = 0; d < static_cast<int>(array.ndim()); d++) text += (d ? ", " : "") + std::to_string(array.shape(d));
  return text + "), " + std::to_string(array.itemsize()) + " bytes each";
}

void check_results(const std::vector<mx::array>& made, const bespoke_tensor* const* wanted, size_t count) {
  if (made.size() != count) throw Failure{std::to_string(made.size()) + " results", BESPOKE_ENGINE_OTHER_SIGNATURE};
  for (size_t i = 0; i < count; i++)
    if (made[i].shape() != shape_of(*wanted[i]) || made[i].dtype() != type_of(*wanted[i]))
      throw Failure{shown(made[i]), BESPOKE_ENGINE_OTHER_SIGNATURE};
}

// Traced once with operands that are never computed: that is how MLX says what a program takes and gives.
void check_signature(const mx::ImportedFunction& function, const bespoke_artifact& artifact) {
  std::vector<mx::array> operands;
  for (size_t i = 0; i < artifact.operand_count; i++)
    operands.push_back(mx::zeros(shape_of(*artifact.operands[i]), type_of(*artifact.operands[i]), mx::Device::cpu));
  std::vector<mx::array> results;
  try {
    results = function(operands);
  } catch (const std::invalid_argument&) {
    throw Failure{"other operands", BESPOKE_ENGINE_OTHER_SIGNATURE};
  }
  check_results(results, artifact.results, artifact.result_count);
}

mx::array copied(const bespoke_tensor& tensor) {
  const mx::Shape shape = shape_of(tensor);
  const mx::Dtype type = type_of(tensor);
  size_t bytes = type.size();
  for (const auto extent : shape) bytes *= static_cast<size_t>(extent);
  mx::array copy(mx::allocator::malloc(bytes), shape, type);
  if (bytes && !copy.data<char>()) throw std::bad_alloc();
  std::memcpy(copy.data<char>(), tensor.data, bytes);
  return copy;
}

void run_program(const mx::ImportedFunction& function, const bespoke_tensor* const* operands, size_t operand_count,
                 const bespoke_tensor* const* results, size_t result_count) {
  std::vector<mx::array> taken;
  for (size_t i = 0; i < operand_count; i++) taken.push_back(copied(*operands[i]));
  std::vector<mx::array> made = function(taken);
  taken.clear();  // a handle would keep an operand past its last use
  check_results(made, results, result_count);
  evaluate(made);
  for (size_t i = 0; i < result_count; i++) {
    if (!made[i].flags().row_contiguous) {
      made[i] = mx::contiguous(made[i], false, mx::Device::cpu);
      mx::eval(made[i]);
    }
    std::memcpy(results[i]->data, made[i].data<char>(), made[i].nbytes());
  }
}

int open(void*, const bespoke_artifact* artifact, void** program, char* message, size_t message_size) {
  return guarded(message, message_size, [&] {
    auto function = imported(*artifact);
    check_signature(function, *artifact);
    *program = new mx::ImportedFunction(std::move(function));
  });
}

int run(void* context, void* program, const bespoke_tensor* const* operands, size_t operand_count, const bespoke_tensor* const* results,
        size_t result_count, char* message, size_t message_size) {
  const size_t before = mx::get_active_memory();  // constants of programs, which the system counts
  mx::reset_peak_memory();
  const int failed = guarded(message, message_size, [&] {
    run_program(*static_cast<mx::ImportedFunction*>(program), operands, operand_count, results, result_count);
  });
  mx::clear_cache();  // of Metal; what a call took is given back
  auto* own = static_cast<Context*>(context);
  own->peak = std::max(own->peak, std::max(mx::get_peak_memory(), before) - before);
  return failed;
}

void close(void*, void* program) { delete static_cast<mx::ImportedFunction*>(program); }
void destroy(void* context) { delete static_cast<Context*>(context); }
int64_t peak_bytes(void* context) { return static_cast<int64_t>(std::exchange(static_cast<Context*>(context)->peak, size_t{0})); }

}  // namespace
}  // namespace bespoke

int bespoke_engine_module(bespoke_engine* engine, char* message, size_t message_size) {
  const std::string built =
      std::to_string(MLX_VERSION_MAJOR) + "." + std::to_string(MLX_VERSION_MINOR) + "." + std::to_string(MLX_VERSION_PATCH);
  return bespoke::guarded(message, message_size, [&] {
    if (built != mlx::core::version())
      throw bespoke::Failure{"MLX " + std::string(mlx::core::version()) + " where it was built with " + built};
    *engine = {};
    engine->struct_size = sizeof *engine;
    engine->target = "mlx";
    engine->open = bespoke::open, engine->run = bespoke::run, engine->close = bespoke::close, engine->destroy = bespoke::destroy;
    engine->peak_bytes = bespoke::peak_bytes;
    engine->context = new bespoke::Context;
  });
}
