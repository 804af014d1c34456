// SPDX-License-Identifier: Apache-2.0
// int4 to fp32, one weight at a time.
#pragma once

#include "kernels/loops/weight_rows.h"

namespace bespoke::kernels {

// S: `half`, and NR, the columns of a strip of the panel.
template <class S>
struct DecodeScalar {
  static float value(const uint8_t* q, int64_t j, float scale) { return float((q[j / 2] >> j % 2 * 4 & 15) - 8) * scale; }

  static void decode_transposed(const Rows& w, int64_t k, float* o, int64_t strip) {
    for (int64_t i = 0; i < BLOCK; i++) {
      const uint8_t* q = w.codes + i * w.codes_stride + k / 2;
      const float s = S::half(w.scales[i * w.scales_stride + k / GROUP]);
      for (int64_t j = 0; j < GROUP; j++) o[i / 16 * strip + j * S::NR + i % 16] = value(q, j, s);
    }
  }

  static void decode_rows(const Weight& w, int64_t n, int64_t K, int64_t k, float* o, int64_t strip) {
    for (int64_t i = 0; i < K; i++, o += S::NR) {
      const uint8_t* q = w.codes + (n + i) * w.codes_stride + k / 2;
      const float s = S::half(w.scales[(n + i) * w.scales_stride + k / GROUP]);
      for (int64_t j = 0; j < GROUP; j++) o[j / 16 * strip + j % 16] = value(q, j, s);
    }
  }
};

}  // namespace bespoke::kernels
