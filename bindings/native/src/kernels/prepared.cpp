// SPDX-License-Identifier: Apache-2.0
// Products of loops that prepare rows: a block of DEPTH summands after the other, so that what is prepared stays small. Threads first
// prepare a block's rows together, each some of them. Then each multiplies columns of its own, the same in every block, so that they stay
// in its cache. Threads are not equally fast: one that is done with its own takes pieces of another's, from their end. An element's
// summands are added block by block, whoever does it. A thread waits only for what another one has taken, so any number gets through.
#include <atomic>
#include <thread>

#include "kernels/drivers.h"

namespace bespoke::kernels {
namespace {

constexpr int64_t MOST_PIECES = 128;

template <class Done>
void wait_until(Done done) {
  for (int64_t tries = 0; !done(); tries++)
    if (tries > 2000) std::this_thread::yield();  // who works on it may have no processor
}

struct Piece {
  std::atomic<int64_t> taken{0}, added{0};  // blocks
};

struct Blocks {
  const PreparedLoops* loops;
  const Product* product;
  int64_t t;  // the first row of this pass
  Direction direction;
  const Weight* w;
  Operands operands;
  char *rows, *panels;
  int64_t depth, count, width, pieces, tasks;
  std::atomic<int64_t> next_tile{0}, tiles_done{0};  // of all blocks together
  Piece piece[MOST_PIECES];

  int64_t begin(int64_t task) const { return task * pieces / tasks; }
  int64_t summands(int64_t block) const { return depth - block * DEPTH < DEPTH ? depth - block * DEPTH : DEPTH; }
  int64_t tiles() const { return ceil_div(operands.rows, loops->row_step); }
  char* rows_of(int64_t block) const { return rows + block % loops->buffers * tiles() * loops->row_step * loops->row_bytes; }

  // Tiles of all blocks are numbered in one row: the threads take them in turn.
  void prepare(int64_t block) {
    for (int64_t i = 0; i < pieces; i++)  // what the buffer held before is used up
      wait_until([&] { return piece[i].added.load(std::memory_order_acquire) > block - loops->buffers; });
    const int64_t end = (block + 1) * tiles();
    for (int64_t i = next_tile.load(); i < end;) {
      if (!next_tile.compare_exchange_weak(i, i + 1)) continue;
      Operands o = operands;
      o.a += block * DEPTH;
      const int64_t t = (i - block * tiles()) * loops->row_step;
      loops->prepare(o, t, summands(block), rows_of(block) + t * loops->row_bytes);
      tiles_done.fetch_add(1, std::memory_order_release);
      i = next_tile.load();
    }
    wait_until([&] { return tiles_done.load(std::memory_order_acquire) >= end; });
  }

  bool take(int64_t number, int64_t block) { return piece[number].taken.compare_exchange_strong(block, block + 1); }

  void add(int64_t number, int64_t block, char* panel) {
    const int64_t k = block * DEPTH, n = number * width;
    Weight some = *w;
    if (direction == Direction::Forward)
      some.codes += k / 2, some.scales += k / GROUP, some.columns = summands(block);
    else
      some.codes += k * w->codes_stride, some.scales += k * w->scales_stride, some.out = summands(block);
    Operands o = operands;
    o.first = block == 0;
    wait_until([&] { return piece[number].added.load(std::memory_order_acquire) >= block; });
    const auto columns = direction == Direction::Forward ? loops->forward : loops->transposed;
    const int64_t end = n + width < count ? n + width : count;
    columns(some, n, end, o, rows_of(block), panel);
    if ((block + 1) * DEPTH >= depth) add_lora(*product, t, n, end, o, panel);
    piece[number].added.store(block + 1, std::memory_order_release);
  }

  static void work(void* context, size_t index) {
    Blocks& b = *static_cast<Blocks*>(context);
    const int64_t task = static_cast<int64_t>(index);
    char* panel = b.panels + task * b.loops->panel_bytes;
    for (int64_t block = 0; block * DEPTH < b.depth; block++) {
      b.prepare(block);
      const auto try_one = [&](int64_t number) {
        if (b.take(number, block)) b.add(number, block, panel);
      };
      for (int64_t i = b.begin(task); i < b.begin(task + 1); i++) try_one(i);
      for (int64_t t = (task + 1) % b.tasks; t != task; t = (t + 1) % b.tasks)
        for (int64_t i = b.begin(t + 1); i-- > b.begin(t);) try_one(i);
    }
  }
};

}  // namespace

void prepared_product(const PreparedLoops& loops, const Product& product) {
  const Weight& w = product.w;
  const bool forward = product.direction == Direction::Forward;
  Blocks b;
  b.loops = &loops, b.product = &product, b.direction = product.direction, b.w = &w;
  b.count = forward ? w.out : w.columns, b.depth = forward ? w.columns : w.out;
  b.width = ceil_div(ceil_div(b.count, MOST_PIECES), BLOCK) * BLOCK, b.pieces = ceil_div(b.count, b.width);
  // Half of the scratch is for rows at least: with many large panels, fewer threads work on one product.
  const int64_t threads = used_threads(product.parallel), most = SCRATCH_BYTES / 2 / loops.panel_bytes;
  b.tasks = threads < most ? threads : most;
  b.tasks = b.pieces < b.tasks ? b.pieces : b.tasks;
  b.panels = product.scratch, b.rows = b.panels + ceil_div(b.tasks * loops.panel_bytes, 64) * 64;
  const int64_t left = product.scratch + SCRATCH_BYTES - b.rows;
  const int64_t most_rows = left / (loops.buffers * loops.row_bytes) / loops.row_step * loops.row_step;
  // Passes of about equal height
  const int64_t passes = ceil_div(product.operands.rows, most_rows);
  const int64_t height = ceil_div(ceil_div(product.operands.rows, passes), loops.row_step) * loops.row_step;
  for (int64_t t = 0; t < product.operands.rows; t += height) {
    b.operands = rows_from(product.operands, t, height), b.t = t;
    b.next_tile = b.tiles_done = 0;
    for (int64_t i = 0; i < b.pieces; i++) b.piece[i].taken = b.piece[i].added = 0;
    run(product.parallel, b.tasks, Blocks::work, &b);
  }
}

}  // namespace bespoke::kernels
