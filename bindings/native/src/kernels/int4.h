// SPDX-License-Identifier: Apache-2.0
// Exact fp32 products with int4 weights, and a chunk of the loss over the vocabulary. The operators of sdk/bespoke/ops without
// tensors: pointers, sizes, strides. Re-entrant: workspace is passed in. Bits do not depend on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bespoke::kernels {

// W [out, columns], a range of columns of what is stored: w = (nibble - 8) * scale, low nibble first, 32 weights a scale.
// Rows end with a whole group: where columns is no multiple of 32, what the rest of the last group holds does not matter.
struct Weight {
  const uint8_t* codes;    // of the first column; a multiple of 32 in the stored matrix
  const uint16_t* scales;  // fp16 bits
  int64_t codes_stride;    // bytes between rows
  int64_t scales_stride;   // scales between rows
  int64_t out, columns;
};

// The threads that work on one product. `run` calls task(context, i) once for each i below `tasks`, in any order, on any
// threads, and returns when all are done. Tasks that share a thread are fine.
struct Parallel {
  void (*run)(void* pool, size_t tasks, void (*task)(void* context, size_t index), void* context);
  void* pool;
  size_t threads;
};
extern const Parallel serial;

// An adapter's share of a product: factor * h b' is added to its result. h [rows, rank]; b [rank, columns of the result], or with
// `transposed` the other way round. A few summands more are cheaper than to read and write the result once more.
struct Lora {
  const float *h, *b;
  int64_t rank;  // at most LORA_RANK
  int64_t b_stride;
  bool transposed;
  float factor;
};
constexpr int64_t LORA_RANK = 64;

// What the loss over the vocabulary has seen so far, and h: sdk/bespoke/ops/head_chunk.py. Row strides of h and acc are `width`.
// A result may lie where the operand of the same name does.
struct HeadState {
  float *m, *l, *label;
  int64_t* best;
  float* acc;  // null without a gradient
};
struct HeadChunk {
  Weight w;  // [C, width]: rows [start, start + C) of the head
  const float* h;
  const int64_t* targets;
  int64_t rows, width, start;
  HeadState from, to;
};

// Elementwise operations one after the other. Registers are numbered: first the inputs, then the outputs, then others.
enum class Elementwise : int64_t { Add, Subtract, Multiply, Sigmoid, Tanh, Constant };
struct ElementwiseStep {
  Elementwise operation;
  int64_t to, a, b;  // registers; of one operand, b is not read
  float number;      // of a constant
};
constexpr int64_t ELEMENTWISE_REGISTERS = 24;  // at most, inputs and outputs among them

// A loop over four dimensions. Strides count floats; 0 repeats an element. For a few rows: such a loop takes less time than waking a
// thread. A result overlaps no operand.
enum class Loop : int64_t { Copy, Add, Subtract, Multiply, Divide, Sigmoid, Tanh, Rsqrt, Product };
struct StridedOperand {
  float* data;
  int64_t strides[4];
};
struct StridedLoop {
  Loop operation;
  int64_t dims[4];
  // Of one operand, b is any that can be read. A product sums over the last dimension, which `to` does not have, and the third one is
  // not one of a: [batch, rows, columns, summands].
  StridedOperand to, a, b;
};

// out [rows, heads * width]: for each position the values [keys, kv_heads * width] weighted by softmax(scale q k^T) of what it sees. Row i
// is at position start + i and sees (position - window, position]. Query head j reads key-value head j / (heads / kv_heads).
struct Attention {
  const float *q, *k, *v;
  float* out;
  int64_t rows, keys, heads, kv_heads, width, start, window;
  float scale;
};

enum class InstructionSet { Baseline, Avx2, Avx512, Neon, Amx, NeonDot, NeonI8mm, Avx512Vnni };
struct Table;  // the inner loops, compiled for an instruction set

// The best this processor has. The others are for tests: null where the processor or the build lacks one.
const Table& best_table();
const Table* table_of(InstructionSet which);
InstructionSet instruction_set(const Table& table);
const char* name_of(InstructionSet which);

// How exact x W^T is. Exact: as fp32 in norm. Rounded: x may be rounded to 16 bits where that is faster, at a cost of some 3e-5 of a row
// in norm.
enum class Precision { Exact, Rounded };

// y [rows, out] = x [rows, columns] W^T, plus the share of `lora` where it is not null. Strides count floats. `workspace` has
// `product_workspace_bytes()` bytes, aligned to 64; the same number as operator_workspace_bytes in sdk/bespoke/ops/operators.py.
void linear(const Table& table, const Weight& w, const float* x, int64_t x_stride, int64_t rows, float* y, int64_t y_stride,
            void* workspace, const Parallel& parallel, const Lora* lora = nullptr, Precision precision = Precision::Exact);
// One of several products of the same rows: y [rows, w.out]. All weights have the same number of columns.
struct Linear {
  Weight w;
  float* y;
  const Lora* lora;
};
// The same as `linear` for each of them. Few rows are shared out among threads once for all.
void linears(const Table& table, const Linear* products, size_t count, const float* x, int64_t rows, void* workspace,
             const Parallel& parallel);
// dx [rows, columns] = g [rows, out] W
void linear_transposed(const Table& table, const Weight& w, const float* g, int64_t g_stride, int64_t rows, float* dx, int64_t dx_stride,
                       void* workspace, const Parallel& parallel, const Lora* lora = nullptr);
// y [count, columns] = the rows `tokens` of W; each below w.out
void embedding(const Table& table, const Weight& w, const int64_t* tokens, int64_t count, float* y);
// `inputs` and `outputs` of `count` elements each. Outputs never overlap inputs.
void elementwise(const Table& table, const ElementwiseStep* steps, int64_t number, const float* const* inputs, int64_t input_count,
                 float* const* outputs, int64_t output_count, int64_t count, const Parallel& parallel);
void strided(const Table& table, const StridedLoop& loop);
// The state after these rows of the head.
void head_chunk(const Table& table, const HeadChunk& chunk, void* workspace, const Parallel& parallel);
// `workspace` has `attention_workspace_bytes` bytes, aligned to 64: as attention_workspace_bytes in sdk/bespoke/ops.
void attention(const Table& table, const Attention& attention, void* workspace, const Parallel& parallel);

size_t product_workspace_bytes();
size_t head_workspace_bytes(int64_t rows);
size_t attention_workspace_bytes(int64_t rows, int64_t keys, int64_t heads, int64_t kv_heads, int64_t width);

}  // namespace bespoke::kernels
