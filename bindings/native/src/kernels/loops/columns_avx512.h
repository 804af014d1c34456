// SPDX-License-Identifier: Apache-2.0
// Columns of a row in whole numbers times int4 codes with AVX-512 and VNNI, 16 columns and four groups at a time: 64 bytes of codes are
// four groups of a column. Each including file has copies of its own.
#pragma once

#include "kernels/loops/rows_x86.h"

namespace bespoke::kernels {
namespace {

struct ColumnsAvx512 {
  static constexpr int N = 4, WIDTH = 16;
  using FourGroups = Groups<4>;

  static __m512 zero() { return _mm512_setzero_ps(); }

  // Scales of 16 columns, `groups` of each, as floats by group.
  static void scales_of(const uint16_t* h, int64_t stride, int64_t groups, __m512 (&scale)[GROUPS]) {
    const __mmask8 there = static_cast<__mmask8>(groups >= GROUPS ? 0xff : (1 << groups) - 1);
    __m256i x[8], y[8];
    UNROLL for (int c = 0; c < 8; c++) {
      const __m128i low = _mm_maskz_loadu_epi16(there, h + c * stride), high = _mm_maskz_loadu_epi16(there, h + (c + 8) * stride);
      x[c] = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
      __builtin_prefetch(h + (WIDTH + c) * stride);  // of the next 16 columns
      __builtin_prefetch(h + (WIDTH + c + 8) * stride);
    }
    UNROLL for (int step = 0; step < 3; step++) {  // three perfect shuffles transpose 8 x 8 in each half
      UNROLL for (int i = 0; i < 4; i++) {
        y[2 * i] = _mm256_unpacklo_epi16(x[i], x[i + 4]);
        y[2 * i + 1] = _mm256_unpackhi_epi16(x[i], x[i + 4]);
      }
      UNROLL for (int i = 0; i < 8; i++) x[i] = y[i];
    }
    UNROLL for (int g = 0; g < GROUPS; g++) scale[g] = _mm512_cvtph_ps(x[g]);
  }

  // Sums of four columns: [columns of the first group | of the second | ...].
  static __m512i four_columns(const uint8_t* q, int64_t stride, __mmask8 there, const FourGroups& row) {
    const __m512i nibble = _mm512_set1_epi8(15);
    __m512i s[4];
    UNROLL for (int c = 0; c < 4; c++) {
      const __m512i codes = _mm512_maskz_loadu_epi64(there, q + c * stride);
      __builtin_prefetch(q + (WIDTH + c) * stride);  // of the next 16 columns
      const __m512i even = _mm512_and_si512(codes, nibble), odd = _mm512_and_si512(_mm512_srli_epi16(codes, 4), nibble);
      s[c] = _mm512_setzero_si512();
      UNROLL for (int d = 0; d < DIGITS; d++) {
        if (d) s[c] = _mm512_slli_epi32(s[c], 8);
        s[c] = _mm512_dpbusd_epi32(s[c], even, _mm512_load_si512(row.digits[d][0]));
        s[c] = _mm512_dpbusd_epi32(s[c], odd, _mm512_load_si512(row.digits[d][1]));
      }
    }
    const __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(s[0], s[1]), _mm512_unpackhi_epi32(s[0], s[1]));
    const __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(s[2], s[3]), _mm512_unpackhi_epi32(s[2], s[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
  }

  // Four groups of 16 columns, or as many as `groups` says.
  static __m512 add(__m512 sum, const uint8_t* q, int64_t stride, int64_t groups, const FourGroups& row, const __m512* scale) {
    const __mmask8 there = static_cast<__mmask8>(groups >= 4 ? 0xff : (1 << 2 * groups) - 1);
    __m512i t[4], number[4];
    UNROLL for (int i = 0; i < 4; i++) t[i] = four_columns(q + 4 * i * stride, stride, there, row);
    const __m512i a = _mm512_shuffle_i32x4(t[0], t[1], 0x44), b = _mm512_shuffle_i32x4(t[0], t[1], 0xee);
    const __m512i c = _mm512_shuffle_i32x4(t[2], t[3], 0x44), d = _mm512_shuffle_i32x4(t[2], t[3], 0xee);
    number[0] = _mm512_shuffle_i32x4(a, c, 0x88), number[1] = _mm512_shuffle_i32x4(a, c, 0xdd);
    number[2] = _mm512_shuffle_i32x4(b, d, 0x88), number[3] = _mm512_shuffle_i32x4(b, d, 0xdd);
    UNROLL for (int g = 0; g < 4; g++) {
      if (g >= groups) break;
      const __m512i value = _mm512_sub_epi32(number[g], _mm512_set1_epi32(row.eight[g]));
      sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(value), _mm512_mul_ps(_mm512_set1_ps(row.scale[g]), scale[g]), sum);
    }
    return sum;
  }
};

}  // namespace
}  // namespace bespoke::kernels
