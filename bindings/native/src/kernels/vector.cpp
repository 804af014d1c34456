// SPDX-License-Identifier: Apache-2.0
// Products of a few rows. The calling thread cuts the rows. Then threads take columns, and read each code once for all rows.
#include <atomic>

#include "kernels/drivers.h"

namespace bespoke::kernels {
namespace {

constexpr int64_t LEAST_COLUMNS = 64;                                      // that a thread takes at a time: some microseconds of work
constexpr int64_t ROW_BYTES = SCRATCH_BYTES - THREADS * LORA_PANEL_BYTES;  // of scratch, for cut rows

struct Share {
  const VectorLoops* loops;
  const Product* product;
  const char* cut;
  int64_t row_bytes, width, t;
  int64_t regions, region;  // contiguous columns of each thread, which it takes before it helps others
  struct alignas(64) Next {
    std::atomic<int64_t> column;
  } next[THREADS];

  static void work(void* context, size_t index) {
    Share& s = *static_cast<Share*>(context);
    const Product& p = *s.product;
    char* panel = p.scratch + ROW_BYTES + static_cast<int64_t>(index) * LORA_PANEL_BYTES;
    for (int64_t i = 0; i < s.regions; i++) {
      const int64_t r = (static_cast<int64_t>(index) + i) % s.regions, last = (r + 1) * s.region < p.w.out ? (r + 1) * s.region : p.w.out;
      for (int64_t n; (n = s.next[r].column.fetch_add(s.width, std::memory_order_relaxed)) < last;) {
        const int64_t end = n + s.width < last ? n + s.width : last;
        for (int64_t t = 0; t < p.operands.rows; t++)
          s.loops->columns(p.w, n, end, s.cut + t * s.row_bytes, p.operands.c + t * p.operands.c_stride);
        add_lora(p, s.t, n, end, p.operands, panel);
      }
    }
  }
};

}  // namespace

bool vector_product(const VectorLoops& loops, const Product& product) {
  const int64_t groups = ceil_div(ceil_div(product.w.columns, GROUP), loops.groups_at_once) * loops.groups_at_once;
  const int64_t row_bytes = groups * loops.group_bytes, most_rows = ROW_BYTES / row_bytes;
  if (most_rows < 1) return false;
  const int64_t threads = used_threads(product.parallel);
  for (int64_t t = 0; t < product.operands.rows; t += most_rows) {
    Product some = product;
    some.operands = rows_from(product.operands, t, most_rows);
    for (int64_t r = 0; r < some.operands.rows; r++)
      loops.cut(some.operands.a + r * some.operands.a_stride, product.w.columns, product.scratch + r * row_bytes);
    Share s;
    s.loops = &loops, s.product = &some, s.cut = product.scratch, s.row_bytes = row_bytes, s.t = t;
    s.width = ceil_div(ceil_div(product.w.out, SHARES * threads), LEAST_COLUMNS) * LEAST_COLUMNS;
    const int64_t pieces = ceil_div(product.w.out, s.width);
    s.regions = pieces < threads ? pieces : threads;
    s.region = ceil_div(pieces, s.regions) * s.width;
    for (int64_t r = 0; r < s.regions; r++) s.next[r].column.store(r * s.region, std::memory_order_relaxed);
    run(product.parallel, s.regions, Share::work, &s);
  }
  return true;
}

}  // namespace bespoke::kernels
