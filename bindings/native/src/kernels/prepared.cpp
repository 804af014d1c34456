// SPDX-License-Identifier: Apache-2.0
// Products of tables that prepare rows (table.h): a block of DEPTH summands after the other, so that what is prepared stays small.
// Each thread prepares the rows for itself and has columns of its own, the same in every block, so that both stay in its cache. Threads
// are not equally fast: one that is done with its own takes pieces of another's, from their end. An element's summands are added block
// by block, whoever does it. A piece waits only for the block before, which some thread has taken: any number of threads gets through.
#include <atomic>
#include <thread>

#include "products.h"

namespace bespoke::kernels {
namespace {

constexpr int64_t MOST_PIECES = 128;

struct Piece {
  std::atomic<int64_t> taken{0}, added{0};  // blocks
};

struct Blocks {
  const Table* table;
  Direction direction;
  const Weight* w;
  Operands operands;
  char* panels;
  int64_t depth, count, width, pieces, tasks;
  Piece piece[MOST_PIECES];

  int64_t begin(int64_t task) const { return task * pieces / tasks; }
  int64_t summands(int64_t block) const { return depth - block * DEPTH < DEPTH ? depth - block * DEPTH : DEPTH; }

  bool take(int64_t number, int64_t block) { return piece[number].taken.compare_exchange_strong(block, block + 1); }

  void add(int64_t number, int64_t block, float* panel) {
    const int64_t k = block * DEPTH, n = number * width;
    Weight some = *w;
    if (direction == Direction::Forward)
      some.codes += k / 2, some.scales += k / 32, some.columns = summands(block);
    else
      some.codes += k * w->codes_stride, some.scales += k * w->scales_stride, some.out = summands(block);
    Operands o = operands;
    o.first = block == 0;
    for (int64_t tries = 0; piece[number].added.load(std::memory_order_acquire) < block; tries++)
      if (tries > 2000) std::this_thread::yield();  // who adds the block before may have no processor
    columns_of(*table, direction)(some, n, n + width < count ? n + width : count, o, panel);
    piece[number].added.store(block + 1, std::memory_order_release);
  }

  static void work(void* context, size_t index) {
    Blocks& b = *static_cast<Blocks*>(context);
    const int64_t task = static_cast<int64_t>(index);
    float* panel = reinterpret_cast<float*>(b.panels + index * PANEL_BYTES);
    for (int64_t block = 0; block * DEPTH < b.depth; block++) {
      bool prepared = false;
      const auto try_one = [&](int64_t number) {
        if (!b.take(number, block)) return;
        if (!prepared) b.table->prepare(b.operands.a + block * DEPTH, b.operands.a_stride, b.operands.rows, b.summands(block));
        prepared = true;
        b.add(number, block, panel);
      };
      for (int64_t i = b.begin(task); i < b.begin(task + 1); i++) try_one(i);
      for (int64_t t = (task + 1) % b.tasks; t != task; t = (t + 1) % b.tasks)
        for (int64_t i = b.begin(t + 1); i-- > b.begin(t);) try_one(i);
    }
  }
};

}  // namespace

void prepared_columns(const Table& table, Direction direction, const Weight& w, const Operands& operands, int64_t count, char* panels,
                      int64_t threads, const Parallel& parallel) {
  Blocks b;
  b.table = &table, b.direction = direction, b.w = &w, b.panels = panels, b.count = count;
  b.depth = direction == Direction::Forward ? w.columns : w.out;
  b.width = ceil_div(ceil_div(count, MOST_PIECES), BLOCK) * BLOCK, b.pieces = ceil_div(count, b.width);
  b.tasks = b.pieces < threads ? b.pieces : threads;
  for (int64_t t = 0; t < operands.rows; t += table.most_rows) {
    b.operands = rows_from(operands, t, table.most_rows);
    for (int64_t i = 0; i < b.pieces; i++) b.piece[i].taken = b.piece[i].added = 0;
    if (b.tasks == 1)
      Blocks::work(&b, 0);
    else
      parallel.run(parallel.pool, static_cast<size_t>(b.tasks), Blocks::work, &b);
  }
}

}  // namespace bespoke::kernels
