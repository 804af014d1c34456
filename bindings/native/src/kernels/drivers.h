// SPDX-License-Identifier: Apache-2.0
// How the work of a product is shared out among threads, for three kinds of loops. Compiled for no instruction set in particular
// (table.h says why).
#pragma once

#include "kernels/table.h"

namespace bespoke::kernels {

constexpr size_t THREADS = 8;                       // that work on one product at once: sdk/bespoke/ops/operators.py
constexpr int64_t PANEL_BYTES = DEPTH * BLOCK * 4;  // decoded weights of a thread
constexpr int64_t SCRATCH_BYTES = THREADS * PANEL_BYTES;
constexpr int64_t SHARES = 4;       // of work, for each thread at least where it suffices: a faster one takes more
constexpr int64_t VECTOR_ROWS = 8;  // at most, of a product that is done by `vector`

static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

static inline int64_t used_threads(const Parallel& parallel) {
  return static_cast<int64_t>(parallel.threads < THREADS ? (parallel.threads ? parallel.threads : 1) : THREADS);
}

// One task is done by the calling thread: waking another takes longer than many a product.
static inline void run(const Parallel& parallel, int64_t tasks, void (*task)(void* context, size_t index), void* context) {
  if (tasks == 1)
    task(context, 0);
  else
    parallel.run(parallel.pool, static_cast<size_t>(tasks), task, context);
}

// At most `most` rows from row t on.
static inline Operands rows_from(Operands o, int64_t t, int64_t most) {
  o.a += t * o.a_stride, o.c += t * o.c_stride, o.keep = o.keep ? o.keep + t : nullptr;
  o.rows = o.rows - t < most ? o.rows - t : most;
  return o;
}

// Behind all summands of columns [n0, n1) of rows [t, t + o.rows).
static inline void add_lora(const Product& product, int64_t t, int64_t n0, int64_t n1, const Operands& o, void* panel) {
  if (product.lora) product.add_lora(*product.lora, t, n0, n1, o, static_cast<float*>(panel));
}

// Loops that read the rows of the other operand where they lie (direct.cpp). Columns [n0, n1) of all summands. Pieces have a multiple of
// row_step rows.
struct DirectLoops {
  int64_t row_step;
  void (*forward)(const Weight& w, int64_t n0, int64_t n1, const Operands& x, float* panel);
  void (*transposed)(const Weight& w, int64_t n0, int64_t n1, const Operands& g, float* panel);
};
void direct_product(const DirectLoops& loops, const Product& product);

// Loops that multiply something else than floats (prepared.cpp): rows are prepared once for all threads, DEPTH summands of row_step rows
// at a time. Columns [n0, n1) of at most DEPTH summands.
struct PreparedLoops {
  int64_t row_step, row_bytes;  // row_bytes: of what DEPTH summands of a row become
  int64_t panel_bytes;          // of a thread, LORA_PANEL_BYTES to PANEL_BYTES
  int64_t buffers;              // of prepared rows. With two, threads that are fast prepare the next summands while others multiply
  void (*prepare)(const Operands& o, int64_t t, int64_t K, char* rows);  // rows [t, t + row_step) of K summands, from the first in `rows`
  void (*forward)(const Weight& w, int64_t n0, int64_t n1, const Operands& x, const char* rows, char* panel);
  void (*transposed)(const Weight& w, int64_t n0, int64_t n1, const Operands& g, const char* rows, char* panel);
};
void prepared_product(const PreparedLoops& loops, const Product& product);

// Loops for a few rows, that read the codes once and decode nothing (vector.cpp): rows become whole numbers, a GROUP at a time.
struct VectorLoops {
  int64_t group_bytes;     // of what a group of a row becomes
  int64_t groups_at_once;  // that `columns` reads: beyond the last group there are zeros
  void (*cut)(const float* x, int64_t K, char* to);
  void (*columns)(const Weight& w, int64_t n0, int64_t n1, const char* row, float* y);  // y[n0, n1) of one row
};
bool vector_product(const VectorLoops& loops, const Product& product);

}  // namespace bespoke::kernels
