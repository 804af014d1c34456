// SPDX-License-Identifier: Apache-2.0
// int4 to fp32 by looking nibbles up in a register of 16 floats: vpermps takes its index from the low four bits of each element.
// Two to three times faster than what decode_bytes.h does with 32 bytes.
#pragma once

#include <immintrin.h>

#include "kernels/loops/weight_rows.h"

namespace bespoke::kernels {

// S: `vec`, `store`, `all`, and NR, the columns of a strip of the panel.
template <class S>
struct DecodeByTable {
  using vec = typename S::vec;

  static vec nibble_values() { return _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7); }

  static __m512i four_rows(const uint8_t* q, int64_t next) {
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i*)q));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i*)(q + next)), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i*)(q + 2 * next)), 2);
    return _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i*)(q + 3 * next)), 3);
  }

  // Eight nibbles of all 16 rows in each of y.
  static void sixteen_rows(const uint8_t* q, int64_t stride, __m512i (&y)[4]) {
    __m512i x[4];  // rows 4 i + j in the i-th quarter of x[j]
    UNROLL for (int j = 0; j < 4; j++) x[j] = four_rows(q + j * stride, 4 * stride);
    const __m512i a = _mm512_unpacklo_epi32(x[0], x[1]), b = _mm512_unpackhi_epi32(x[0], x[1]);
    const __m512i d = _mm512_unpacklo_epi32(x[2], x[3]), e = _mm512_unpackhi_epi32(x[2], x[3]);
    y[0] = _mm512_unpacklo_epi64(a, d), y[1] = _mm512_unpackhi_epi64(a, d);
    y[2] = _mm512_unpacklo_epi64(b, e), y[3] = _mm512_unpackhi_epi64(b, e);
  }

  // Those of one group, of 16 rows.
  static vec sixteen_scales(const uint16_t* h, int64_t stride) {
    uint16_t halves[16];
    UNROLL for (int i = 0; i < 16; i++) halves[i] = h[i * stride];
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)halves));
  }

  // 32 rows of W, the group at column k of them, transposed into the columns of 32 rows of the panel.
  static void decode_transposed(const Rows& w, int64_t k, float* o, int64_t strip) {
    const int64_t stride = w.codes_stride;
    for (int c = 0; c < BLOCK; c += 16, o += strip) {
      const uint8_t* q = w.codes + c * stride + k / 2;
      const uint16_t* h = w.scales + c * w.scales_stride + k / GROUP;
      const vec scale = sixteen_scales(h, w.scales_stride);
      __m512i y[4];
      sixteen_rows(q, stride, y);
      UNROLL for (int j = 0; j < 4; j++) UNROLL for (int i = 0; i < 8; i++)
          S::store(o + (8 * j + i) * S::NR, _mm512_permutexvar_ps(_mm512_srli_epi32(y[j], 4 * i), nibble_values()) * scale);
    }
  }

  // K rows of W from row n, one group at column k, into as many rows of the panel.
  static void decode_rows(const Weight& w, int64_t n, int64_t K, int64_t k, float* o, int64_t strip) {
    const __m512i first = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
    const __m512i shift = _mm512_set1_epi64(4ll << 32);  // 0, 4, 0, 4, ...
    const uint8_t* q = w.codes + n * w.codes_stride + k / 2;
    const uint16_t* h = w.scales + n * w.scales_stride + k / GROUP;
    for (int64_t r = 0; r < K; r += 16) {
      const int64_t rows = smaller(16, K - r);
      uint16_t halves[16] = {};
      float scale[16];
      for (int64_t i = 0; i < rows; i++, h += w.scales_stride) halves[i] = *h;
      _mm512_storeu_ps(scale, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)halves)));
      for (int64_t i = 0; i < rows; i++, q += w.codes_stride, o += S::NR) {
        const __m512i bytes = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)q));
        const vec values = nibble_values() * S::all(scale[i]);
        S::store(o, _mm512_permutexvar_ps(_mm512_srlv_epi32(_mm512_shuffle_epi8(bytes, first), shift), values));
        S::store(o + strip, _mm512_permutexvar_ps(_mm512_srlv_epi32(_mm512_shuffle_epi8(bytes, second), shift), values));
      }
    }
  }
};

}  // namespace bespoke::kernels
