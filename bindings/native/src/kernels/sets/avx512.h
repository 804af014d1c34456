// SPDX-License-Identifier: Apache-2.0
// Vectors of AVX-512 (F, BW, DQ, VL), and what its tables are made of. Each including file has copies of its own.
#pragma once

#include <immintrin.h>

#include "kernels/loops/decode_avx512.h"

namespace bespoke::kernels {
namespace {

struct Vectors {
  static constexpr int VL = 16, NR = 32, ROWS_PER_POINTER = 3;
  typedef __m512 vec;
  static vec load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, vec v) { _mm512_storeu_ps(p, v); }
  static vec all(float f) { return _mm512_set1_ps(f); }
  static vec fused(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
  static vec larger(vec a, vec b) { return _mm512_max_ps(a, b); }  // b where a is not a number
  static vec bits_to_exponent(vec shifted) {
    const __m512i n = _mm512_castps_si512(shifted);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23));
  }
  static vec zero_where_less(vec x, vec limit, vec v) { return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), v); }
  static vec rows_of_four(const float* p, int64_t stride) {
    const __m512 x = _mm512_insertf32x4(_mm512_castps128_ps512(_mm_loadu_ps(p)), _mm_loadu_ps(p + 4 * stride), 1);
    return _mm512_insertf32x4(_mm512_insertf32x4(x, _mm_loadu_ps(p + 8 * stride), 2), _mm_loadu_ps(p + 12 * stride), 3);
  }
  static void transpose_four(vec (&x)[4]) {
    const vec a = _mm512_unpacklo_ps(x[0], x[1]), b = _mm512_unpackhi_ps(x[0], x[1]);
    const vec c = _mm512_unpacklo_ps(x[2], x[3]), d = _mm512_unpackhi_ps(x[2], x[3]);
    x[0] = _mm512_shuffle_ps(a, c, 0x44), x[1] = _mm512_shuffle_ps(a, c, 0xee);
    x[2] = _mm512_shuffle_ps(b, d, 0x44), x[3] = _mm512_shuffle_ps(b, d, 0xee);
  }
};

using Decode = DecodeByTable<Vectors>;

inline __mmask16 first_lanes(int64_t count) { return count >= 16 ? 0xffff : count > 0 ? (1u << count) - 1 : 0; }

}  // namespace
}  // namespace bespoke::kernels
