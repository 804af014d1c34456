// SPDX-License-Identifier: Apache-2.0
// A chunk of the loss over the vocabulary: some rows of h go through all sub-tiles, then the next. So their logits, their sum and what they
// read stay in the cache.
#include "kernels/drivers.h"

namespace bespoke::kernels {
namespace {

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

size_t head_workspace_bytes(int64_t rows) {
  const int64_t held = rows < HEAD_ROWS ? rows : HEAD_ROWS;
  return SCRATCH_BYTES + static_cast<size_t>(held * LOGITS_STRIDE * 4 + HEAD_ROWS * 4);
}

void head_chunk(const Table& table, const HeadChunk& chunk, void* workspace, const Parallel& parallel) {
  char* scratch = static_cast<char*>(workspace);
  float* keep = reinterpret_cast<float*>(scratch + SCRATCH_BYTES);
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
      const float* h = chunk.h + t * chunk.width;
      table.product({Direction::Forward, w, {h, chunk.width, rows, z, LOGITS_STRIDE, nullptr}, scratch, parallel});
      Exponentials e{&table, {z, w.out, chunk.start + c, chunk.targets + t, from, to, keep}, rows, 0};
      e.share = ceil_div(rows, SHARES * used_threads(parallel));
      run(parallel, ceil_div(rows, e.share), Exponentials::work, &e);
      if (to.acc) table.product({Direction::Transposed, w, {z, LOGITS_STRIDE, rows, to.acc, chunk.width, keep}, scratch, parallel});
    }
  }
}

}  // namespace bespoke::kernels
