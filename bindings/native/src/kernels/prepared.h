// SPDX-License-Identifier: Apache-2.0
// Columns [0, count) of a product, by a table that prepares rows.
#pragma once

#include "table.h"

namespace bespoke::kernels {

enum class Direction { Forward, Transposed };

// `panels`: of each thread, as many bytes as `panel_bytes`.
void prepared_columns(const Table& table, Direction direction, const Weight& w, const Operands& operands, int64_t count, char* panels,
                      size_t panel_bytes, int64_t threads, const Parallel& parallel);

}  // namespace bespoke::kernels
