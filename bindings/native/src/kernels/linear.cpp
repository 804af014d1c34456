// SPDX-License-Identifier: Apache-2.0
#include "kernels/drivers.h"

namespace bespoke::kernels {
namespace {

void run_serially(void*, size_t tasks, void (*task)(void*, size_t), void* context) {
  for (size_t i = 0; i < tasks; i++) task(context, i);
}

// The products behind `also` and `count` more, in one call of the table's vector.
bool together(const Table& table, const Linear* products, size_t count, const float* x, int64_t rows, void* workspace,
              const Parallel& parallel, const Product* also) {
  if (!count) return table.vector(*also);
  const Weight& w = products->w;
  const Product product = {
      Direction::Forward, w,   {x, w.columns, rows, products->y, w.out, nullptr}, static_cast<char*>(workspace), parallel, products->lora,
      table.add_lora,     also};
  return together(table, products + 1, count - 1, x, rows, workspace, parallel, &product);
}

}  // namespace

const Parallel serial = {run_serially, nullptr, 1};

size_t product_workspace_bytes() { return SCRATCH_BYTES; }

void linear(const Table& table, const Weight& w, const float* x, int64_t x_stride, int64_t rows, float* y, int64_t y_stride,
            void* workspace, const Parallel& parallel, const Lora* lora, Precision precision) {
  if (rows <= 0 || w.out <= 0) return;
  const Product product = {Direction::Forward, w, {x, x_stride, rows, y, y_stride, nullptr}, static_cast<char*>(workspace), parallel, lora,
                           table.add_lora};
  if (rows <= VECTOR_ROWS && table.vector && table.vector(product)) return;
  (precision == Precision::Rounded && table.rounded ? table.rounded : table.product)(product);
}

void linears(const Table& table, const Linear* products, size_t count, const float* x, int64_t rows, void* workspace,
             const Parallel& parallel) {
  if (rows <= 0 || !count) return;
  if (rows <= VECTOR_ROWS && table.vector && together(table, products, count, x, rows, workspace, parallel, nullptr)) return;
  for (size_t i = 0; i < count; i++) {
    const Linear& one = products[i];
    linear(table, one.w, x, one.w.columns, rows, one.y, one.w.out, workspace, parallel, one.lora);
  }
}

void linear_transposed(const Table& table, const Weight& w, const float* g, int64_t g_stride, int64_t rows, float* dx, int64_t dx_stride,
                       void* workspace, const Parallel& parallel, const Lora* lora) {
  if (rows <= 0 || w.columns <= 0) return;
  table.product({Direction::Transposed,
                 w,
                 {g, g_stride, rows, dx, dx_stride, nullptr},
                 static_cast<char*>(workspace),
                 parallel,
                 lora,
                 table.add_lora});
}

void embedding(const Table& table, const Weight& w, const int64_t* tokens, int64_t count, float* y) {
  for (int64_t t = 0; t < count; t++) table.row(w, tokens[t], y + t * w.columns);
}

}  // namespace bespoke::kernels
