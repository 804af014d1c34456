// SPDX-License-Identifier: Apache-2.0
// Work shared out among threads: all columns of a product (products.cpp where rows are read where they lie, prepared.cpp where a
// table prepares them), and elements. Only for files that are compiled for no instruction set in particular (table.h says why).
#pragma once

#include "table.h"

namespace bespoke::kernels {

enum class Direction { Forward, Transposed };

typedef void (*Columns)(const Weight& w, int64_t n0, int64_t n1, const Operands& operands, float* panel);

inline Columns columns_of(const Table& table, Direction direction) {
  return direction == Direction::Forward ? table.forward : table.transposed;
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

constexpr size_t PANEL_BYTES = DEPTH * BLOCK * 4;  // of each thread
constexpr int64_t SHARES = 4;                      // of work, for each thread at least where it suffices: a faster one takes more

// At most `most` rows from row t on.
inline Operands rows_from(Operands o, int64_t t, int64_t most) {
  o.a += t * o.a_stride, o.c += t * o.c_stride, o.keep = o.keep ? o.keep + t : nullptr;
  o.rows = o.rows - t < most ? o.rows - t : most;
  return o;
}

// Columns [0, count). `panels`: PANEL_BYTES of each thread.
void prepared_columns(const Table& table, Direction direction, const Weight& w, const Operands& operands, int64_t count, char* panels,
                      int64_t threads, const Parallel& parallel);

}  // namespace bespoke::kernels
