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
  int64_t row_bytes, width;
  int64_t first, rows;      // that are cut
  int64_t columns;          // of all products, one behind the other
  int64_t regions, region;  // contiguous columns of each thread, which it takes before it helps others
  struct alignas(64) Next {
    std::atomic<int64_t> column;
  } next[THREADS];

  static void work(void* context, size_t index) {
    Share& s = *static_cast<Share*>(context);
    char* panel = s.product->scratch + ROW_BYTES + static_cast<int64_t>(index) * LORA_PANEL_BYTES;
    for (int64_t i = 0; i < s.regions; i++) {
      const int64_t r = (static_cast<int64_t>(index) + i) % s.regions, last = smaller((r + 1) * s.region, s.columns);
      for (int64_t n; (n = s.next[r].column.fetch_add(s.width, std::memory_order_relaxed)) < last;)
        s.multiply(n, smaller(n + s.width, last), panel);
    }
  }

  // Columns [begin, end), each of the product that it belongs to.
  void multiply(int64_t begin, int64_t end, char* panel) const {
    for (const Product* p = product; p && end > 0; begin -= p->w.out, end -= p->w.out, p = p->also) {
      const int64_t n0 = begin > 0 ? begin : 0, n1 = smaller(end, p->w.out);
      if (n0 >= n1) continue;
      for (int64_t t = 0; t < rows; t++)
        loops->columns(p->w, n0, n1, cut + t * row_bytes, p->operands.c + (first + t) * p->operands.c_stride);
      add_lora(*p, first, n0, n1, rows_from(p->operands, first, rows), panel);
    }
  }
};

}  // namespace

bool vector_product(const VectorLoops& loops, const Product& product) {
  const int64_t groups = ceil_div(ceil_div(product.w.columns, GROUP), loops.groups_at_once) * loops.groups_at_once;
  const int64_t row_bytes = groups * loops.group_bytes, most_rows = ROW_BYTES / row_bytes;
  if (most_rows < 1) return false;
  const int64_t threads = used_threads(product.parallel);
  Share s;
  s.loops = &loops, s.product = &product, s.cut = product.scratch, s.row_bytes = row_bytes, s.columns = 0;
  for (const Product* p = &product; p; p = p->also) s.columns += p->w.out;
  s.width = ceil_div(ceil_div(s.columns, SHARES * threads), LEAST_COLUMNS) * LEAST_COLUMNS;
  const int64_t pieces = ceil_div(s.columns, s.width);
  s.regions = smaller(pieces, threads), s.region = ceil_div(pieces, s.regions) * s.width;
  for (s.first = 0; s.first < product.operands.rows; s.first += most_rows) {
    const Operands some = rows_from(product.operands, s.first, most_rows);
    s.rows = some.rows;
    for (int64_t r = 0; r < s.rows; r++) loops.cut(some.a + r * some.a_stride, product.w.columns, product.scratch + r * row_bytes);
    for (int64_t r = 0; r < s.regions; r++) s.next[r].column.store(r * s.region, std::memory_order_relaxed);
    run(product.parallel, s.regions, Share::work, &s);
  }
  return true;
}

}  // namespace bespoke::kernels
