// SPDX-License-Identifier: Apache-2.0
// All columns of a product, shared out among threads: products.cpp where rows are read where they lie, prepared.cpp where a table
// prepares them. Only for files that are compiled for no instruction set in particular (table.h says why).
#pragma once

#include "table.h"

namespace bespoke::kernels {

enum class Direction { Forward, Transposed };

typedef void (*Columns)(const Weight& w, int64_t n0, int64_t n1, const Operands& operands, float* panel);

inline Columns columns_of(const Table& table, Direction direction) {
  return direction == Direction::Forward ? table.forward : table.transposed;
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Columns [0, count). `panels`: of each thread, as many bytes as `panel_bytes`.
void prepared_columns(const Table& table, Direction direction, const Weight& w, const Operands& operands, int64_t count, char* panels,
                      size_t panel_bytes, int64_t threads, const Parallel& parallel);

}  // namespace bespoke::kernels
