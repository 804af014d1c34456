// SPDX-License-Identifier: Apache-2.0
// int4 to fp32, one weight at a time.
#pragma once

inline float value(const uint8_t* q, int64_t j, float scale) { return float((q[j / 2] >> j % 2 * 4 & 15) - 8) * scale; }

inline void decode_transposed(const Rows& w, int64_t k, float* o, int64_t strip) {
  for (int64_t i = 0; i < BLOCK; i++) {
    const uint8_t* q = w.codes + i * w.codes_stride + k / 2;
    const float s = half(w.scales[i * w.scales_stride + k / 32]);
    for (int64_t j = 0; j < 32; j++) o[i / 16 * strip + j * NR + i % 16] = value(q, j, s);
  }
}

inline void decode_rows(const Weight& w, int64_t n, int64_t K, int64_t k, float* o, int64_t strip) {
  for (int64_t i = 0; i < K; i++, o += NR) {
    const uint8_t* q = w.codes + (n + i) * w.codes_stride + k / 2;
    const float s = half(w.scales[(n + i) * w.scales_stride + k / 32]);
    for (int64_t j = 0; j < 32; j++) o[j / 16 * strip + j % 16] = value(q, j, s);
  }
}
