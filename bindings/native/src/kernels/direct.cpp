// SPDX-License-Identifier: Apache-2.0
// Each element of a result has one owner, who adds its summands in the order of their numbers, so that neither the number of threads nor
// who comes first shows in the bits. Threads take pieces as they get free, since they are not equally fast.
#include <atomic>

#include "kernels/drivers.h"

namespace bespoke::kernels {
namespace {

// Enough rows over a panel to make decoding cheap, but no more pages than processors keep the addresses of; and columns taken at a time,
// so that rows are read half as often.
constexpr int64_t TALL = 264, WIDE = 2 * BLOCK;

// A product cut into pieces of `width` columns times `height` rows. A thread has a row of neighbours of its own and takes from others'
// when it is done: where neighbours are another's, processors take lines of the result from each other.
struct Pieces {
  const DirectLoops* loops;
  const Product* product;
  int64_t count, width, height, across, tasks;
  std::atomic<int64_t> next[THREADS];

  int64_t down() const { return ceil_div(product->operands.rows, height); }
  int64_t begin(int64_t task) const { return task * across * down() / tasks; }

  static void work(void* context, size_t index) {
    Pieces& p = *static_cast<Pieces*>(context);
    float* panel = reinterpret_cast<float*>(p.product->scratch + index * PANEL_BYTES);
    const int64_t task = static_cast<int64_t>(index);
    for (int64_t other = 0; other < p.tasks; other++) {
      const int64_t from = (task + other) % p.tasks;
      for (int64_t i; (i = p.next[from].fetch_add(1, std::memory_order_relaxed)) < p.begin(from + 1);) p.multiply(i, panel);
    }
  }

  void multiply(int64_t piece, float* panel) const {
    const auto columns = product->direction == Direction::Forward ? loops->forward : loops->transposed;
    const int64_t n = piece % across * width, t = piece / across * height;
    const int64_t end = n + width < count ? n + width : count;
    const Operands rows = rows_from(product->operands, t, height);
    columns(product->w, n, end, rows, panel);
    add_lora(*product, t, n, end, rows, panel);
  }
};

}  // namespace

void direct_product(const DirectLoops& loops, const Product& product) {
  const int64_t threads = used_threads(product.parallel), rows = product.operands.rows;
  Pieces p;
  p.loops = &loops, p.product = &product;
  p.count = product.direction == Direction::Forward ? product.w.out : product.w.columns;
  p.width = threads == 1 ? WIDE : ceil_div(ceil_div(p.count, SHARES * threads), BLOCK) * BLOCK;
  if (p.width > WIDE) p.width = WIDE;
  p.across = ceil_div(p.count, p.width);
  // Few columns and many threads: rows are shared out as well, though each share decodes the weights again.
  const int64_t shares = p.across >= threads ? 1 : ceil_div(threads, p.across);
  p.height = ceil_div(ceil_div(rows, shares), loops.row_step) * loops.row_step;
  if (p.height > TALL) p.height = TALL / loops.row_step * loops.row_step;
  const int64_t pieces = p.across * p.down();
  p.tasks = pieces < threads ? pieces : threads;
  for (int64_t task = 0; task < p.tasks; task++) p.next[task] = p.begin(task);
  run(product.parallel, p.tasks, Pieces::work, &p);
}

}  // namespace bespoke::kernels
