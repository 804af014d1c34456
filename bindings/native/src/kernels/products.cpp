// SPDX-License-Identifier: Apache-2.0
// Who does what: each element of a result has one owner, who adds its summands in the order of their numbers, so that neither the
// number of threads nor who comes first shows in the bits. Threads take columns as they get free, since they are not equally fast.
#include "products.h"

#include <atomic>

namespace bespoke::kernels {
namespace {

constexpr size_t THREADS = 8;  // that work on one product at once: sdk/bespoke/ops/operators.py

size_t panels(size_t threads) { return threads < THREADS ? (threads ? threads : 1) : THREADS; }

void run_serially(void*, size_t tasks, void (*task)(void*, size_t), void* context) {
  for (size_t i = 0; i < tasks; i++) task(context, i);
}

// A product cut into pieces of `width` columns times `height` rows.
struct SharedProduct {
  Columns columns;
  const Weight* w;
  Operands operands;
  int64_t count, width, height, across;
  std::atomic<int64_t> next{0};
  char* workspace;

  static void work(void* context, size_t index) {
    SharedProduct& p = *static_cast<SharedProduct*>(context);
    float* panel = reinterpret_cast<float*>(p.workspace + index * PANEL_BYTES);
    const int64_t down = ceil_div(p.operands.rows, p.height);
    for (int64_t i; (i = p.next.fetch_add(1, std::memory_order_relaxed)) < p.across * down;) {
      const int64_t n = i % p.across * p.width, t = i / p.across * p.height;
      p.columns(*p.w, n, n + p.width < p.count ? n + p.width : p.count, rows_from(p.operands, t, p.height), panel);
    }
  }
};

// All columns of a product.
void all_columns(const Table& table, Direction direction, const Weight& w, const Operands& operands, void* workspace,
                 const Parallel& parallel) {
  const int64_t count = direction == Direction::Forward ? w.out : w.columns, threads = static_cast<int64_t>(panels(parallel.threads));
  if (operands.rows <= 0 || count <= 0) return;
  if (table.prepare) return prepared_columns(table, direction, w, operands, count, static_cast<char*>(workspace), threads, parallel);
  SharedProduct p;
  p.columns = columns_of(table, direction), p.w = &w, p.operands = operands, p.count = count, p.workspace = static_cast<char*>(workspace);
  p.width = threads == 1 ? table.most_columns : ceil_div(ceil_div(count, SHARES * threads), BLOCK) * BLOCK;
  if (p.width > table.most_columns) p.width = table.most_columns;
  p.across = ceil_div(count, p.width);
  // Few columns and many threads: rows are shared out as well, though each share decodes the weights again.
  const int64_t shares = p.across >= threads ? 1 : ceil_div(threads, p.across);
  p.height = ceil_div(ceil_div(operands.rows, shares), table.row_step) * table.row_step;
  if (p.height > table.most_rows) p.height = table.most_rows;
  const int64_t pieces = p.across * ceil_div(operands.rows, p.height);
  const size_t tasks = static_cast<size_t>(pieces < threads ? pieces : threads);
  if (tasks == 1)
    SharedProduct::work(&p, 0);
  else
    parallel.run(parallel.pool, tasks, SharedProduct::work, &p);
}

struct Exponentials {
  const Table* table;
  Softmax softmax;
  int64_t rows, share;
  static void work(void* context, size_t index) {
    const Exponentials& e = *static_cast<Exponentials*>(context);
    const int64_t begin = static_cast<int64_t>(index) * e.share, end = begin + e.share;
    e.table->softmax(e.softmax, begin, end < e.rows ? end : e.rows);
  }
};

HeadState from_row(HeadState s, int64_t t, int64_t width) {
  return {s.m + t, s.l + t, s.label + t, s.best + t, s.acc ? s.acc + t * width : nullptr};
}

void copy_state(const HeadState& from, const HeadState& to, int64_t rows, int64_t width) {
  const size_t bytes = static_cast<size_t>(rows) * 4;
  __builtin_memmove(to.m, from.m, bytes);
  __builtin_memmove(to.l, from.l, bytes);
  __builtin_memmove(to.label, from.label, bytes);
  __builtin_memmove(to.best, from.best, 2 * bytes);
  if (to.acc && to.acc != from.acc) __builtin_memmove(to.acc, from.acc, bytes * static_cast<size_t>(width));
}

}  // namespace

const Parallel serial = {run_serially, nullptr, 1};

size_t product_workspace_bytes(size_t threads) { return panels(threads) * PANEL_BYTES; }

size_t head_workspace_bytes(int64_t rows, size_t threads) {
  const int64_t held = rows < HEAD_ROWS ? rows : HEAD_ROWS;
  return product_workspace_bytes(threads) + static_cast<size_t>(held * LOGITS_STRIDE * 4 + HEAD_ROWS * 4);
}

void linear(const Table& table, const Weight& w, const float* x, int64_t x_stride, int64_t rows, float* y, int64_t y_stride,
            void* workspace, const Parallel& parallel) {
  all_columns(table, Direction::Forward, w, {x, x_stride, rows, y, y_stride, nullptr}, workspace, parallel);
}

void linear_transposed(const Table& table, const Weight& w, const float* g, int64_t g_stride, int64_t rows, float* dx, int64_t dx_stride,
                       void* workspace, const Parallel& parallel) {
  all_columns(table, Direction::Transposed, w, {g, g_stride, rows, dx, dx_stride, nullptr}, workspace, parallel);
}

void embedding(const Table& table, const Weight& w, const int64_t* tokens, int64_t count, float* y) {
  for (int64_t t = 0; t < count; t++) table.row(w, tokens[t], y + t * w.columns);
}

// Some rows of h go through all sub-tiles, then the next: their logits, their sum and what they read stay in the cache.
void head_chunk(const Table& table, const HeadChunk& chunk, void* workspace, const Parallel& parallel) {
  float* keep = reinterpret_cast<float*>(static_cast<char*>(workspace) + product_workspace_bytes(parallel.threads));
  float* z = keep + HEAD_ROWS;
  if (chunk.w.out <= 0) copy_state(chunk.from, chunk.to, chunk.rows, chunk.width);
  for (int64_t t = 0; t < chunk.rows; t += HEAD_ROWS) {
    const int64_t rows = chunk.rows - t < HEAD_ROWS ? chunk.rows - t : HEAD_ROWS;
    HeadState from = from_row(chunk.from, t, chunk.width);
    const HeadState to = from_row(chunk.to, t, chunk.width);
    if (to.acc && to.acc != from.acc) __builtin_memmove(to.acc, from.acc, static_cast<size_t>(rows * chunk.width) * 4);
    for (int64_t c = 0; c < chunk.w.out; c += HEAD_COLUMNS, from = to) {
      Weight w = chunk.w;
      w.codes += c * w.codes_stride, w.scales += c * w.scales_stride;
      w.out = w.out - c < HEAD_COLUMNS ? w.out - c : HEAD_COLUMNS;
      const Operands logits = {chunk.h + t * chunk.width, chunk.width, rows, z, LOGITS_STRIDE, nullptr};
      all_columns(table, Direction::Forward, w, logits, workspace, parallel);
      Exponentials e{&table, {z, w.out, chunk.start + c, chunk.targets + t, from, to, keep}, rows, 0};
      const int64_t threads = static_cast<int64_t>(panels(parallel.threads));
      e.share = ceil_div(rows, SHARES * threads);
      parallel.run(parallel.pool, static_cast<size_t>(ceil_div(rows, e.share)), Exponentials::work, &e);
      if (to.acc) all_columns(table, Direction::Transposed, w, {z, LOGITS_STRIDE, rows, to.acc, chunk.width, keep}, workspace, parallel);
    }
  }
}

}  // namespace bespoke::kernels
