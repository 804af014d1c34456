// SPDX-License-Identifier: Apache-2.0
// Attention, shared out among threads: some positions of one key-value head make up a task, so that a panel of keys serves all their
// queries. They go through the keys a span after the other, and what a span adds is merged. A few positions make too few tasks: then the
// spans are tasks as well, and are merged when all are done. Both ways have the same bits.
#include <atomic>

#include "kernels/drivers.h"

namespace bespoke::kernels {
namespace {

constexpr int64_t QUERIES = 32;               // of a task at least, where there are as many
constexpr int64_t LEAST_OPERATIONS = 200000;  // multiply-adds that are worth waking a thread

struct Sizes {
  int64_t rows, heads, stride, spans;  // positions and queries of a task; floats of a sum, a multiple of LANES; spans of all keys
  int64_t queries() const { return rows * heads; }
  int64_t sums() const { return queries() * (stride + 2); }  // floats of AttentionSums
};

Sizes sizes_of(int64_t rows, int64_t keys, int64_t heads, int64_t kv_heads, int64_t width) {
  Sizes s;
  s.heads = heads / kv_heads, s.stride = ceil_div(width, LANES) * LANES, s.spans = ceil_div(keys, DEPTH);
  s.rows = s.heads < QUERIES ? QUERIES / s.heads : 1;
  if (s.rows > rows) s.rows = rows;
  return s;
}

// Of one thread: a panel, scores, queries side by side, and two sums.
int64_t thread_bytes(const Sizes& s, int64_t width) {
  const int64_t floats = s.queries() * (LOGITS_STRIDE + width) + 2 * s.sums();
  return PANEL_BYTES + ceil_div(floats * 4, 64) * 64;
}

struct Tasks {
  const Table* table;
  const Attention* a;
  Sizes size;
  char* scratch;
  float* partial;  // sums of each task and span; null where a task does all spans
  int64_t tasks, first_span, spans;
  std::atomic<int64_t> next{0};

  AttentionSums sums_at(float* p) const { return {p, p + size.queries(), p + 2 * size.queries()}; }
  int64_t row_of(int64_t task) const { return task / a->kv_heads * size.rows; }
  int64_t rows_of(int64_t task) const { return a->rows - row_of(task) < size.rows ? a->rows - row_of(task) : size.rows; }
  int64_t head_of(int64_t task) const { return task % a->kv_heads * size.heads; }
  const float* queries_of(int64_t task, int64_t row) const { return a->q + ((row_of(task) + row) * a->heads + head_of(task)) * a->width; }

  void clear(const AttentionSums& s) const {
    __builtin_memset(s.l, 0, static_cast<size_t>(size.queries() * (size.stride + 1)) * 4);  // and the sum behind it
    for (int64_t i = 0; i < size.queries(); i++) s.m[i] = LEAST;
  }

  void one_span(int64_t task, int64_t number, char* own, const AttentionSums& to) const {
    AttentionSpan s;
    s.panel = reinterpret_cast<float*>(own), s.scores = reinterpret_cast<float*>(own + PANEL_BYTES);
    s.heads = size.heads, s.width = a->width, s.queries = rows_of(task) * size.heads;
    float* packed = s.scores + size.queries() * LOGITS_STRIDE;
    for (int64_t r = 0; r < rows_of(task); r++)
      __builtin_memcpy(packed + r * size.heads * a->width, queries_of(task, r), static_cast<size_t>(size.heads * a->width) * 4);
    s.q = packed;
    const int64_t first = number * DEPTH, kv = task % a->kv_heads;
    s.stride = a->kv_heads * a->width, s.k = a->k + first * s.stride + kv * a->width, s.v = a->v + first * s.stride + kv * a->width;
    s.readable = a->keys - first, s.position = a->start + row_of(task) - first, s.window = a->window, s.scale = a->scale;
    s.keys = s.position + rows_of(task);
    if (s.keys > s.readable) s.keys = s.readable;
    if (s.keys > DEPTH) s.keys = DEPTH;
    s.to = to, s.sum_stride = size.stride;
    table->attention(s);
  }

  // The positions of a task see nothing before the span `begin_of`, and nothing from `end_of` on.
  int64_t end_of(int64_t task) const {
    const int64_t end = (a->start + row_of(task) + rows_of(task) - 1) / DEPTH + 1;
    return end < size.spans ? end : size.spans;
  }
  int64_t begin_of(int64_t task) const {
    const int64_t least = a->start + row_of(task) - a->window + 1;
    return least < 0 ? 0 : least / DEPTH;
  }

  void write(int64_t task, const AttentionSums& s) const {
    for (int64_t i = 0; i < rows_of(task) * size.heads; i++) {
      const float *from = s.sum + i * size.stride, l = s.l[i];
      float* to = a->out + ((row_of(task) + i / size.heads) * a->heads + head_of(task) + i % size.heads) * a->width;
      for (int64_t j = 0; j < a->width; j++) to[j] = from[j] / l;
    }
  }

  float* partial_of(int64_t task, int64_t span) const { return partial + (task * size.spans + span) * size.sums(); }

  void merge(int64_t task, const AttentionSums& to, const AttentionSums& from) const {
    table->merge(to, from, rows_of(task) * size.heads, size.stride);
  }

  static void work(void* context, size_t index) {
    Tasks& t = *static_cast<Tasks*>(context);
    char* own = t.scratch + static_cast<int64_t>(index) * thread_bytes(t.size, t.a->width);
    for (int64_t i; (i = t.next.fetch_add(1, std::memory_order_relaxed)) < t.tasks * t.spans;)
      t.partial ? t.one_span(i / t.spans, t.first_span + i % t.spans, own, t.sums_at(t.partial_of(i / t.spans, i % t.spans)))
                : t.all_spans(i, own);
  }

  AttentionSums own_sums(char* own, int64_t which) const {
    float* behind = reinterpret_cast<float*>(own + PANEL_BYTES) + size.queries() * (LOGITS_STRIDE + a->width);
    return sums_at(behind + which * size.sums());
  }

  void all_spans(int64_t task, char* own) const {
    const AttentionSums total = own_sums(own, 0), more = own_sums(own, 1);
    clear(total);
    for (int64_t span = begin_of(task); span < end_of(task); span++) {
      one_span(task, span, own, more);
      merge(task, total, more);
    }
    write(task, total);
  }
};

}  // namespace

size_t attention_workspace_bytes(int64_t rows, int64_t keys, int64_t heads, int64_t kv_heads, int64_t width) {
  const Sizes s = sizes_of(rows, keys, heads, kv_heads, width);
  const int64_t partial = rows <= VECTOR_ROWS ? ceil_div(rows, s.rows) * kv_heads * s.spans * s.sums() * 4 : 0;
  return static_cast<size_t>(static_cast<int64_t>(THREADS) * thread_bytes(s, width) + partial);
}

void attention(const Table& table, const Attention& a, void* workspace, const Parallel& parallel) {
  if (a.rows <= 0) return;
  Tasks t;
  t.table = &table, t.a = &a, t.size = sizes_of(a.rows, a.keys, a.heads, a.kv_heads, a.width);
  t.scratch = static_cast<char*>(workspace);
  t.tasks = ceil_div(a.rows, t.size.rows) * a.kv_heads, t.first_span = 0, t.spans = 1, t.partial = nullptr;
  const int64_t end = a.start + a.rows < a.keys ? a.start + a.rows : a.keys;
  int64_t threads = used_threads(parallel);
  if (2 * a.rows * a.heads * a.width * (end < a.window ? end : a.window) < LEAST_OPERATIONS) threads = 1;
  if (a.rows <= VECTOR_ROWS && threads > 1) {
    t.partial = reinterpret_cast<float*>(t.scratch + static_cast<int64_t>(THREADS) * thread_bytes(t.size, a.width));
    t.first_span = t.begin_of(0), t.spans = t.end_of(t.tasks - 1) - t.first_span;
  }
  const int64_t pieces = t.tasks * t.spans;
  run(parallel, pieces < threads ? pieces : threads, Tasks::work, &t);
  for (int64_t task = 0; t.partial && task < t.tasks; task++) {
    const AttentionSums total = t.own_sums(t.scratch, 0);
    t.clear(total);
    for (int64_t span = 0; span < t.spans; span++) t.merge(task, total, t.sums_at(t.partial_of(task, span)));
    t.write(task, total);
  }
}

}  // namespace bespoke::kernels
