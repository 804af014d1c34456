// SPDX-License-Identifier: Apache-2.0
// Elements shared out among threads, a span at a time. What is neither input nor output lies on the stack. A loop with strides is done by
// the calling thread.
#include "kernels/drivers.h"

namespace bespoke::kernels {
namespace {

constexpr int64_t SPAN = 256;

struct Spans {
  const Table* table;
  const ElementwiseStep* steps;
  int64_t number;
  const float* const* inputs;
  int64_t input_count;
  float* const* outputs;
  int64_t output_count;
  int64_t count, share;

  void run(int64_t begin, int64_t end) const {
    alignas(64) float own[ELEMENTWISE_REGISTERS][SPAN];
    float* registers[ELEMENTWISE_REGISTERS];
    for (int64_t r = 0; r < ELEMENTWISE_REGISTERS; r++) registers[r] = own[r];
    const int64_t whole = begin + (end - begin) / LANES * LANES;
    for (int64_t i = begin; i < whole; i += SPAN) {
      for (int64_t r = 0; r < input_count; r++) registers[r] = const_cast<float*>(inputs[r] + i);
      for (int64_t r = 0; r < output_count; r++) registers[input_count + r] = outputs[r] + i;
      table->elementwise(steps, number, registers, whole - i < SPAN ? whole - i : SPAN);
    }
    if (whole < end) last(whole, static_cast<size_t>(end - whole) * 4, own, registers);
  }

  // Fewer than LANES elements: by way of registers, so that nothing beyond them is read or written.
  void last(int64_t i, size_t bytes, float (*own)[SPAN], float** registers) const {
    for (int64_t r = 0; r < input_count + output_count; r++) registers[r] = own[r];
    for (int64_t r = 0; r < input_count; r++) {
      __builtin_memset(own[r], 0, LANES * 4);
      __builtin_memcpy(own[r], inputs[r] + i, bytes);
    }
    table->elementwise(steps, number, registers, LANES);
    for (int64_t r = 0; r < output_count; r++) __builtin_memcpy(outputs[r] + i, own[input_count + r], bytes);
  }

  static void work(void* context, size_t index) {
    const Spans& s = *static_cast<Spans*>(context);
    const int64_t begin = static_cast<int64_t>(index) * s.share, end = begin + s.share;
    s.run(begin, end < s.count ? end : s.count);
  }
};

}  // namespace

void elementwise(const Table& table, const ElementwiseStep* steps, int64_t number, const float* const* inputs, int64_t input_count,
                 float* const* outputs, int64_t output_count, int64_t count, const Parallel& parallel) {
  if (count <= 0) return;
  const int64_t shares = SHARES * static_cast<int64_t>(parallel.threads ? parallel.threads : 1);
  const int64_t share = ceil_div(ceil_div(count, shares), SPAN) * SPAN;
  Spans spans{&table, steps, number, inputs, input_count, outputs, output_count, count, share};
  run(parallel, ceil_div(count, share), Spans::work, &spans);
}

void strided(const Table& table, const StridedLoop& loop) { table.strided(loop); }

}  // namespace bespoke::kernels
