// SPDX-License-Identifier: Apache-2.0
// Columns of a row in whole numbers times int4 codes on x86-64: the way through a row, the same with each width of registers. Each
// including file has copies of its own.
#pragma once

#include "kernels/loops/rows_x86.h"

namespace bespoke::kernels {
namespace {

// S: N groups of WIDTH columns at a time. `zero`, a vector of WIDTH sums; `scales_of` WIDTH columns, by group; and `add`, which adds the
// next N groups of these columns, or as many as are left.
template <class S>
struct ColumnsX86 : RowsX86<S::N> {
  static constexpr int64_t N = S::N, WIDTH = S::WIDTH;
  using Row = Groups<S::N>;

  // WIDTH columns from n on. The strides are 0 where there are fewer: then all are the same.
  static auto some_columns(const Weight& w, int64_t n, int64_t codes_stride, int64_t scales_stride, const Row* row) {
    const uint8_t* q = w.codes + n * w.codes_stride;
    const uint16_t* h = w.scales + n * w.scales_stride;
    auto total = S::zero();
    for (int64_t g = 0, groups = (w.columns + GROUP - 1) / GROUP; g < groups; g += GROUPS, h += GROUPS) {
      decltype(total) scale[GROUPS], sum = S::zero();
      const int64_t some = smaller(GROUPS, groups - g);
      S::scales_of(h, scales_stride, some, scale);
      for (int64_t p = 0; p < some; p += N, q += 16 * N, row++) sum = S::add(sum, q, codes_stride, some - p, *row, scale + p);
      total = g == 0 ? sum : total + sum;
    }
    return total;
  }

  static void columns(const Weight& w, int64_t n0, int64_t n1, const char* cut_row, float* y) {
    const Row* row = reinterpret_cast<const Row*>(cut_row);
    if (w.out < WIDTH) {
      for (int64_t n = n0; n < n1; n++) y[n] = some_columns(w, n, 0, 0, row)[0];
      return;
    }
    for (int64_t n = n0; n < n1; n += WIDTH) {
      const int64_t first = smaller(n, w.out - WIDTH);
      const auto sums = some_columns(w, first, w.codes_stride, w.scales_stride, row);
      if (n + WIDTH <= n1) {
        __builtin_memcpy(y + n, &sums, sizeof(sums));
        continue;
      }
      for (int64_t i = n; i < n1; i++) y[i] = sums[i - first];
    }
  }
};

}  // namespace
}  // namespace bespoke::kernels
