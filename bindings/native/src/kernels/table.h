// SPDX-License-Identifier: Apache-2.0
// What is compiled once for each instruction set. Kept free of inline functions and templates of the standard library: the linker
// keeps one copy of such a function, and that may be the one that other processors cannot run.
#pragma once

#include "int4.h"

namespace bespoke::kernels {

constexpr int64_t BLOCK = 32;   // columns decoded together: a group, so that a row of W has one scale there
constexpr int64_t DEPTH = 256;  // summands decoded together, a multiple of 32. The order of sums depends on it alone
// Of tables that read rows of the other operand where they lie: enough rows over a panel to make decoding cheap, but no more pages
// than processors keep the addresses of; and columns taken at a time, so that rows are read half as often.
constexpr int64_t TALL = 264, WIDE = 2 * BLOCK;
constexpr int64_t LANES = 16;                         // of a row's sum of exponentials, in every instruction set
constexpr int64_t HEAD_ROWS = 256;                    // rows of h whose logits are held at once
constexpr int64_t HEAD_COLUMNS = DEPTH;               // vocabulary rows of a sub-tile: one panel deep
constexpr int64_t LOGITS_STRIDE = HEAD_COLUMNS + 16;  // so that rows of logits do not compete for the same cache lines

// c [rows, n] = (or +=, or = c * keep +) a W'. Row strides count floats.
struct Operands {
  const float* a;
  int64_t a_stride, rows;
  float* c;
  int64_t c_stride;
  const float* keep;  // of each row; null: c is overwritten by the first summands
  bool first = true;  // of tables that prepare rows: whether these are the first summands; others take all
};

// A row's logits become exp(z - m) and enter the sum. [begin, end) of the rows of z, `count` columns each.
struct Softmax {
  float* z;       // [rows, LOGITS_STRIDE]
  int64_t count;  // vocabulary rows of this sub-tile
  int64_t first;  // and the number of the first one
  const int64_t* targets;
  HeadState from, to;  // of these rows; acc is not touched
  float* keep;         // out: exp(m - m')
};

// How a product is cut into pieces: `rows` is a multiple of row_step and at most most_rows, columns are at most most_columns.
// Where rows are prepared, most_rows alone counts.
struct Table {
  InstructionSet set;
  int64_t row_step, most_rows, most_columns;
  void (*forward)(const Weight& w, int64_t n0, int64_t n1, const Operands& x, float* panel);     // columns [n0, n1) of x W^T
  void (*transposed)(const Weight& w, int64_t n0, int64_t n1, const Operands& g, float* panel);  // columns [n0, n1) of g W
  void (*row)(const Weight& w, int64_t row, float* y);
  void (*softmax)(const Softmax& s, int64_t begin, int64_t end);
  void (*elementwise)(const ElementwiseStep* steps, int64_t number, float* const* registers, int64_t count);
  void (*noise)(float* out, int64_t count, const uint32_t* counter, uint64_t seed, bool rademacher);  // the same bits in each
  // Of tables that multiply something else than floats (prepared.cpp); null elsewhere. The calling thread gets what these rows become,
  // a [rows, K] of at most DEPTH summands: its calls of forward and transposed, with the weights of these alone, multiply that.
  void (*prepare)(const float* a, int64_t stride, int64_t rows, int64_t K) = nullptr;
};

extern const Table baseline_table;
#if defined(__x86_64__)
extern const Table avx2_table, avx512_table, amx_table;
#elif defined(__aarch64__)
extern const Table neon_table;
#endif

}  // namespace bespoke::kernels
