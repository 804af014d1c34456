// SPDX-License-Identifier: Apache-2.0
// Our operators as ExecuTorch calls them: sdk/bespoke/ops/operators.py has their schemas. Programs are checked by hash before
// they come here, and shapes all the same: a call that does not fit fails instead of reading past an operand.
#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/kernel/kernel_runtime_context.h>
#include <executorch/runtime/kernel/operator_registry.h>

#include <algorithm>
#include <cstring>

#include "engines/executorch/threads.h"
#include "kernels/int4.h"
#include "kernels/precision.h"

namespace bespoke {
namespace {

namespace rt = executorch::runtime;
using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using rt::KernelRuntimeContext;
using Stack = rt::Span<rt::EValue*>;

constexpr size_t kMostSteps = 64;           // of an elementwise operator: MOST_STEPS in the target's fusing.py
constexpr size_t kMostLinears = 4;          // of one call: MOST in the target's together.py
constexpr size_t kMostTensors = 64;         // of a strided operator: MOST_TENSORS in the target's strided.py
constexpr int64_t kMostElements = 1 << 24;  // of one of its tensors
constexpr int64_t kMostPasses = 1 << 28;    // of one of its loops: what is damaged must end, too

struct Refused {};  // within this file: becomes the failure of the call

void require(bool fits) {
  if (!fits) throw Refused{};
}

kernels::Parallel threads() {
  auto* pool = executorch::extension::threadpool::get_threadpool();
  if (!pool) return kernels::serial;
  const size_t all = pool->get_thread_count();
  return {run_on_pool, pool, threads_of_run ? std::min(all, threads_of_run) : all};
}

const kernels::Table& table() {
  static const kernels::Table& best = kernels::best_table();  // asking the processor costs microseconds in a virtual machine
  return best;
}

void require_matrix(const Tensor& t, ScalarType type) { require(t.scalar_type() == type && t.dim() == 2); }

// Columns [start, start + columns) of what is stored.
kernels::Weight weight_of(const Tensor& codes, const Tensor& scales, int64_t start, int64_t columns) {
  require_matrix(codes, ScalarType::Byte);
  require_matrix(scales, ScalarType::Half);
  const int64_t groups = scales.size(1);
  require(codes.size(0) == scales.size(0) && codes.size(1) == 16 * groups);
  require(start >= 0 && start % 32 == 0 && columns > 0 && start <= 32 * groups - columns);
  return {codes.const_data_ptr<uint8_t>() + start / 2,
          static_cast<const uint16_t*>(scales.const_data_ptr()) + start / 32,
          16 * groups,
          groups,
          codes.size(0),
          columns};
}

// h [rows, rank], and b [columns of the result, rank] where it is transposed.
kernels::Lora lora_of(const Tensor& h, const Tensor& b, bool transposed, float factor, int64_t rows, int64_t columns) {
  require_matrix(h, ScalarType::Float);
  require_matrix(b, ScalarType::Float);
  const int64_t rank = h.size(1);
  require(h.size(0) == rows && rank > 0 && rank <= kernels::LORA_RANK);
  require(b.size(transposed ? 1 : 0) == rank && b.size(transposed ? 0 : 1) == columns);
  return {h.const_data_ptr<float>(), b.const_data_ptr<float>(), rank, b.size(1), transposed, factor};
}

// One operator's operands, in the order of its schema.
class Call {
 public:
  Call(KernelRuntimeContext& context, Stack stack) : context_(context), stack_(stack) {}

  const Tensor& tensor(size_t index, ScalarType type) const {
    require(index < stack_.size() && stack_[index]->isTensor());
    const Tensor& t = stack_[index]->toTensor();
    require(t.scalar_type() == type);
    return t;
  }
  int64_t integer(size_t index) const {
    require(index < stack_.size() && stack_[index]->isInt());
    return stack_[index]->toInt();
  }
  float number(size_t index) const {
    require(index < stack_.size() && stack_[index]->isDouble());
    return static_cast<float>(stack_[index]->toDouble());
  }
  const Tensor& matrix(size_t index, ScalarType type) const {
    const Tensor& t = tensor(index, type);
    require(t.dim() == 2);
    return t;
  }
  float* floats(size_t index, int64_t count) const {
    const Tensor& t = tensor(index, ScalarType::Float);
    require(t.numel() == count);
    return t.mutable_data_ptr<float>();
  }
  int64_t* integers(size_t index, int64_t count) const {
    const Tensor& t = tensor(index, ScalarType::Long);
    require(t.numel() == count);
    return t.mutable_data_ptr<int64_t>();
  }
  // Codes at `index`, scales after it; columns [start, start + columns).
  kernels::Weight weight(size_t index, int64_t start, int64_t columns) const {
    return weight_of(tensor(index, ScalarType::Byte), tensor(index + 1, ScalarType::Half), start, columns);
  }
  void* workspace(size_t bytes) const {
    rt::Result<void*> memory = context_.allocate_temp(bytes, 64);
    if (!memory.ok()) context_.fail(memory.error());
    return memory.ok() ? memory.get() : nullptr;
  }

 private:
  KernelRuntimeContext& context_;
  Stack stack_;
};

// (x or g, codes, scales, column_start?, columns, [h, b, transposed, factor], out)
void product(const Call& call, Stack stack, bool transposed, bool adapted) {
  const Tensor& x = call.matrix(0, ScalarType::Float);
  require(stack.size() > 5);
  const int64_t columns = call.integer(4);
  const int64_t start = stack[3]->isNone() ? 0 : *call.integers(3, 1);
  const kernels::Weight w = call.weight(1, start, columns);
  const int64_t rows = x.size(0), in = transposed ? w.out : columns, out = transposed ? columns : w.out;
  require(x.size(1) == in);
  float* y = call.floats(adapted ? 9 : 5, rows * out);
  kernels::Lora lora{};
  if (adapted)
    lora = lora_of(call.tensor(5, ScalarType::Float), call.tensor(6, ScalarType::Float), call.integer(7) != 0, call.number(8), rows, out);
  const kernels::Parallel parallel = threads();
  const kernels::Lora* adapter = adapted ? &lora : nullptr;
  void* workspace = call.workspace(kernels::product_workspace_bytes());
  if (!workspace) return;
  if (transposed)
    kernels::linear_transposed(table(), w, x.const_data_ptr<float>(), in, rows, y, out, workspace, parallel, adapter);
  else
    kernels::linear(table(), w, x.const_data_ptr<float>(), in, rows, y, out, workspace, parallel, adapter, kernels::precision_of_run);
}

void linear(const Call& call, Stack stack) { product(call, stack, false, false); }
void linear_transposed(const Call& call, Stack stack) { product(call, stack, true, false); }
void linear_lora(const Call& call, Stack stack) { product(call, stack, false, true); }
void linear_transposed_lora(const Call& call, Stack stack) { product(call, stack, true, true); }

// (x, [codes, scales] of each weight, columns, [h, b] of each adapter or none, [transposed, bits of the factor] of each, outputs...)
void linears(const Call& call, Stack stack) {
  const Tensor& x = call.matrix(0, ScalarType::Float);
  require(stack.size() > 5 && stack[1]->isTensorList() && stack[4]->isIntList());
  const auto weights = stack[1]->toTensorList();
  const auto fields = stack[4]->toIntList();
  const size_t count = weights.size() / 2;
  require(count > 0 && count <= kMostLinears && weights.size() == 2 * count && stack.size() == 5 + count + 1);
  const int64_t columns = call.integer(2), rows = x.size(0);
  require(x.size(1) == columns);
  rt::ArrayRef<Tensor> adapters;
  if (!stack[3]->isNone()) {
    require(stack[3]->isTensorList());
    adapters = stack[3]->toTensorList();
    require(adapters.size() == 2 * count && fields.size() == 2 * count);
  }
  kernels::Linear products[kMostLinears];
  kernels::Lora loras[kMostLinears];
  for (size_t i = 0; i < count; i++) {
    const kernels::Weight w = weight_of(weights[2 * i], weights[2 * i + 1], 0, columns);
    products[i] = {w, call.floats(5 + i, rows * w.out), nullptr};
    if (adapters.empty()) continue;
    const auto bits = static_cast<uint32_t>(fields[2 * i + 1]);
    float factor;
    std::memcpy(&factor, &bits, sizeof bits);
    loras[i] = lora_of(adapters[2 * i], adapters[2 * i + 1], fields[2 * i] != 0, factor, rows, w.out);
    products[i].lora = &loras[i];
  }
  const kernels::Parallel parallel = threads();
  if (void* workspace = call.workspace(kernels::product_workspace_bytes()))
    kernels::linears(table(), products, count, x.const_data_ptr<float>(), rows, workspace, parallel);
}

// (tokens, codes, scales, columns, out)
void embedding(const Call& call, Stack stack) {
  const int64_t count = call.tensor(0, ScalarType::Long).numel();
  const int64_t* tokens = call.integers(0, count);
  const kernels::Weight w = call.weight(1, 0, call.integer(3));
  for (int64_t i = 0; i < count; i++) require(tokens[i] >= 0 && tokens[i] < w.out);
  kernels::embedding(table(), w, tokens, count, call.floats(4, count * w.columns));
}

kernels::HeadState head_state(const Call& call, size_t index, int64_t rows, int64_t width, bool gradient) {
  return {call.floats(index, rows), call.floats(index + 1, rows), call.floats(index + 2, rows), call.integers(index + 3, rows),
          gradient ? call.floats(index + 4, rows * width) : nullptr};
}

// (h, codes, scales, targets, start, m, l, label, best, [acc], m_out, l_out, label_out, best_out, [acc_out])
void head(const Call& call, bool gradient) {
  const Tensor& h = call.matrix(0, ScalarType::Float);
  kernels::HeadChunk chunk;
  chunk.rows = h.size(0), chunk.width = h.size(1);
  chunk.h = h.const_data_ptr<float>();
  chunk.w = call.weight(1, 0, chunk.width);
  chunk.targets = call.integers(3, chunk.rows);
  chunk.start = *call.integers(4, 1);
  chunk.from = head_state(call, 5, chunk.rows, chunk.width, gradient);
  chunk.to = head_state(call, gradient ? 10 : 9, chunk.rows, chunk.width, gradient);
  const kernels::Parallel parallel = threads();
  if (void* workspace = call.workspace(kernels::head_workspace_bytes(chunk.rows))) kernels::head_chunk(table(), chunk, workspace, parallel);
}

void head_chunk(const Call& call, Stack stack) { head(call, false); }
void head_chunk_gradient(const Call& call, Stack stack) { head(call, true); }

// (inputs, code, outputs...): five numbers for each step, its fields in order, the constant as the bits of a float.
void elementwise(const Call& call, Stack stack) {
  require(stack.size() > 2 && stack[0]->isTensorList() && stack[1]->isIntList());
  const auto given = stack[0]->toTensorList();
  const auto code = stack[1]->toIntList();
  const size_t results = stack.size() - 3;  // after them ExecuTorch has what the call returns
  constexpr size_t most = kernels::ELEMENTWISE_REGISTERS, fields = 5;
  kernels::ElementwiseStep steps[kMostSteps];
  const size_t number = code.size() / fields;
  require(results > 0 && given.size() + results <= most && code.size() == number * fields && number <= kMostSteps);
  for (size_t s = 0; s < number; s++) {
    const int64_t* field = &code[s * fields];
    for (size_t f = 1; f < 4; f++) require(field[f] >= 0 && field[f] < static_cast<int64_t>(most));
    require(field[0] >= 0 && field[0] <= static_cast<int64_t>(kernels::Elementwise::Constant));
    require(field[1] >= static_cast<int64_t>(given.size()));  // operands are not written to
    const auto bits = static_cast<uint32_t>(field[4]);
    steps[s] = {static_cast<kernels::Elementwise>(field[0]), field[1], field[2], field[3], 0};
    std::memcpy(&steps[s].number, &bits, sizeof bits);
  }
  const int64_t count = call.tensor(2, ScalarType::Float).numel();
  const float* inputs[most];
  float* outputs[most];
  for (size_t i = 0; i < given.size(); i++) {
    require(given[i].scalar_type() == ScalarType::Float && given[i].numel() == count);
    inputs[i] = given[i].const_data_ptr<float>();
  }
  for (size_t i = 0; i < results; i++) outputs[i] = call.floats(2 + i, count);
  kernels::elementwise(table(), steps, static_cast<int64_t>(number), inputs, static_cast<int64_t>(given.size()), outputs,
                       static_cast<int64_t>(results), count, threads());
}

// The code of `strided`: floats of the workspace, how many numbers it begins with and their bits, then loops of kLoopFields: operation,
// dimensions, and three operands, each with a tensor, the first element and strides. Tensors are numbered: inputs, outputs, workspace.
struct StridedCode {
  static constexpr size_t kOperandFields = 6, kLoopFields = 5 + 3 * kOperandFields;

  explicit StridedCode(rt::ArrayRef<int64_t> code) : code(code) {
    require(code.size() >= 2 && code[1] >= 0 && code[1] <= code[0]);
    const auto numbers = static_cast<size_t>(code[1]);
    require(numbers <= code.size() - 2 && (code.size() - 2 - numbers) % kLoopFields == 0);
    loops = 2 + numbers;
  }

  void write_numbers(float* to) const {
    for (size_t i = 2; i < loops; i++) {
      const auto bits = static_cast<uint32_t>(code[i]);
      std::memcpy(to + i - 2, &bits, sizeof bits);
    }
  }

  rt::ArrayRef<int64_t> code;
  size_t loops;  // where they begin
};

// The operand whose fields begin at `field`, within its tensor for all of `dims`.
kernels::StridedOperand operand_of(const int64_t* field, const int64_t* dims, float* const* tensors, const int64_t* counts,
                                   int64_t number) {
  require(field[0] >= 0 && field[0] < number && field[1] >= 0 && field[1] <= kMostElements);
  int64_t last = field[1];
  kernels::StridedOperand operand{tensors[field[0]] + field[1], {}};
  for (size_t d = 0; d < 4; d++) {
    const int64_t stride = field[2 + d];
    require(stride >= 0 && stride <= kMostElements && last <= kMostElements);
    operand.strides[d] = stride, last += (dims[d] - 1) * stride;
  }
  require(last < counts[field[0]]);
  return operand;
}

// (inputs, code, outputs...)
void strided(const Call& call, Stack stack) {
  require(stack.size() > 2 && stack[0]->isTensorList() && stack[1]->isIntList());
  const auto given = stack[0]->toTensorList();
  const StridedCode code(stack[1]->toIntList());
  const size_t results = stack.size() - 3;  // after them ExecuTorch has what the call returns
  const size_t number = given.size() + results;
  require(results > 0 && number < kMostTensors && code.code[0] <= kMostElements);
  float* tensors[kMostTensors];
  int64_t counts[kMostTensors];
  for (size_t i = 0; i < given.size(); i++) {
    require(given[i].scalar_type() == ScalarType::Float);
    tensors[i] = const_cast<float*>(given[i].const_data_ptr<float>()), counts[i] = given[i].numel();
  }
  for (size_t i = 0; i < results; i++) {
    const Tensor& out = call.tensor(2 + i, ScalarType::Float);
    tensors[given.size() + i] = out.mutable_data_ptr<float>(), counts[given.size() + i] = out.numel();
  }
  counts[number] = code.code[0];
  tensors[number] = static_cast<float*>(call.workspace(static_cast<size_t>(counts[number]) * sizeof(float)));
  if (!tensors[number]) return;
  code.write_numbers(tensors[number]);

  for (const int64_t* field = code.code.begin() + code.loops; field < code.code.end(); field += StridedCode::kLoopFields) {
    kernels::StridedLoop loop;
    require(field[0] >= 0 && field[0] <= static_cast<int64_t>(kernels::Loop::Product));
    loop.operation = static_cast<kernels::Loop>(field[0]);
    int64_t passes = 1;
    for (size_t d = 0; d < 4; d++) {
      require(field[1 + d] > 0 && field[1 + d] <= kMostPasses / passes);
      loop.dims[d] = field[1 + d], passes *= field[1 + d];
    }
    kernels::StridedOperand* operands[] = {&loop.to, &loop.a, &loop.b};
    for (size_t o = 0; o < 3; o++)
      *operands[o] = operand_of(field + 5 + o * StridedCode::kOperandFields, loop.dims, tensors, counts, static_cast<int64_t>(number) + 1);
    require(field[5] >= static_cast<int64_t>(given.size()));  // operands are not written to
    kernels::strided(table(), loop);
  }
}

// (q, k, v, start, window, heads, kv_heads, scale, out)
void attention(const Call& call, Stack) {
  const Tensor &q = call.matrix(0, ScalarType::Float), &k = call.matrix(1, ScalarType::Float), &v = call.matrix(2, ScalarType::Float);
  kernels::Attention a;
  a.rows = q.size(0), a.keys = k.size(0), a.heads = call.integer(5), a.kv_heads = call.integer(6);
  require(a.kv_heads > 0 && a.heads >= a.kv_heads && a.heads % a.kv_heads == 0 && q.size(1) % a.heads == 0);
  a.width = q.size(1) / a.heads;
  require(a.width > 0 && k.size(1) == a.kv_heads * a.width && v.size(0) == a.keys && v.size(1) == k.size(1));
  a.start = *call.integers(3, 1), a.window = *call.integers(4, 1), a.scale = call.number(7);
  require(a.window >= 0 && a.start >= 0 && a.start <= a.keys - a.rows);
  a.q = q.const_data_ptr<float>(), a.k = k.const_data_ptr<float>(), a.v = v.const_data_ptr<float>();
  a.out = call.floats(8, a.rows * q.size(1));
  const kernels::Parallel parallel = threads();
  if (void* workspace = call.workspace(kernels::attention_workspace_bytes(a.rows, a.keys, a.heads, a.kv_heads, a.width)))
    kernels::attention(table(), a, workspace, parallel);
}

template <void (*operation)(const Call&, Stack)>
void boxed(KernelRuntimeContext& context, Stack stack) {
  try {
    operation(Call(context, stack), stack);
  } catch (const Refused&) {
    context.fail(rt::Error::InvalidArgument);
  }
}

const rt::Kernel operators[] = {
    rt::Kernel("bespoke::linear_int4.out", boxed<linear>),
    rt::Kernel("bespoke::linear_int4_transposed.out", boxed<linear_transposed>),
    rt::Kernel("bespoke::linear_int4_lora.out", boxed<linear_lora>),
    rt::Kernel("bespoke::linear_int4_transposed_lora.out", boxed<linear_transposed_lora>),
    rt::Kernel("bespoke::linears_int4.out", boxed<linears>),
    rt::Kernel("bespoke::embedding_int4.out", boxed<embedding>),
    rt::Kernel("bespoke::head_chunk_int4.out", boxed<head_chunk>),
    rt::Kernel("bespoke::head_chunk_gradient_int4.out", boxed<head_chunk_gradient>),
    rt::Kernel("bespoke::elementwise.out", boxed<elementwise>),
    rt::Kernel("bespoke::strided.out", boxed<strided>),
    rt::Kernel("bespoke::attention.out", boxed<attention>),
};
// ExecuTorch's table of operators is its own; this enters them when the library is loaded, as all its kernels do.
[[maybe_unused]] const rt::Error registered = rt::register_kernels({operators, sizeof(operators) / sizeof(operators[0])});

}  // namespace
}  // namespace bespoke
