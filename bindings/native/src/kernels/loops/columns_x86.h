// SPDX-License-Identifier: Apache-2.0
// Columns of a row in whole numbers times int4 codes, eight columns and two groups at a time: 32 bytes of codes are two groups, even
// summands in low nibbles and odd ones in high nibbles.
#pragma once

#include <immintrin.h>

#include "kernels/loops/digits.h"
#include "kernels/loops/weight_rows.h"

namespace bespoke::kernels {

// Two groups of a row, the first in the lower half of each register.
struct alignas(32) TwoGroups {
  int8_t digits[DIGITS][2][32];  // the highest first; of even summands, of odd ones
  int32_t eight[2];              // 8 times the sum of the numbers: codes are 8 too large
  float scale[2];
};

// S: `sums`, of the codes of four columns times two groups: [columns of the first group | of the second].
template <class S>
struct ColumnsX86 {
  static constexpr int64_t GROUPS = DEPTH / GROUP;

  // ---- rows ----

  static uint32_t top_of(const float* x) {
    const __m256i size = _mm256_set1_epi32(0x7fffffff);
    __m256i top = _mm256_setzero_si256();
    UNROLL for (int i = 0; i < GROUP; i += 8) top =
        _mm256_max_epi32(top, _mm256_and_si256(_mm256_loadu_si256((const __m256i*)(x + i)), size));
    __m128i t = _mm_max_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    t = _mm_max_epi32(t, _mm_shuffle_epi32(t, 0x4e));
    t = _mm_max_epi32(t, _mm_shuffle_epi32(t, 0xb1));
    return static_cast<uint32_t>(_mm_cvtsi128_si32(t));
  }

  static int32_t sum_of(__m256i v) {
    __m128i t = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(t, _mm_shuffle_epi32(t, 0xb1)));
  }

  // One digit of 32 numbers, eight in each of v, as bytes: even ones, then odd ones.
  static void put_digit(const __m256i (&v)[4], int shift, int8_t* even, int8_t* odd) {
    const __m256i byte = _mm256_set1_epi32(255), in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i by_parity = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
    __m256i d[4];
    UNROLL for (int i = 0; i < 4; i++) d[i] = _mm256_and_si256(_mm256_srli_epi32(v[i], shift), byte);
    const __m256i a = _mm256_packus_epi32(d[0], d[1]), b = _mm256_packus_epi32(d[2], d[3]);
    __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(a, b), in_order);
    bytes = _mm256_xor_si256(_mm256_shuffle_epi8(bytes, by_parity), _mm256_set1_epi8(-128));
    bytes = _mm256_permute4x64_epi64(bytes, 0xd8);  // even, even, odd, odd
    _mm_storeu_si128((__m128i*)even, _mm256_castsi256_si128(bytes));
    _mm_storeu_si128((__m128i*)odd, _mm256_extracti128_si256(bytes, 1));
  }

  // x [K]; a group that does not exist is zeros.
  static void cut(const float* x, int64_t K, char* to) {
    for (int64_t k = 0; k < K; k += 2 * GROUP, to += sizeof(TwoGroups)) {
      TwoGroups& two = *reinterpret_cast<TwoGroups*>(to);
      for (int half = 0; half < 2; half++) {
        float own[GROUP];
        const float* a = group_of(x, k + half * GROUP, K, own);
        const Scale scale = scale_for(top_of(a));
        __m256i v[4];
        UNROLL for (int i = 0; i < 4; i++) v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(a + 8 * i), _mm256_set1_ps(scale.up)));
        const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(v[0], v[1]), _mm256_add_epi32(v[2], v[3]));
        two.eight[half] = static_cast<int32_t>(8 * static_cast<uint32_t>(sum_of(sum)));
        two.scale[half] = scale.down;
        UNROLL for (int i = 0; i < 4; i++) v[i] = _mm256_add_epi32(v[i], _mm256_set1_epi32(DIGIT_OFFSET));
        UNROLL for (int d = 0; d < DIGITS; d++)
            put_digit(v, 8 * (DIGITS - 1 - d), two.digits[d][0] + 16 * half, two.digits[d][1] + 16 * half);
      }
    }
  }

  // ---- columns ----

  // Scales of eight columns, `groups` of each, as floats by group.
  static void scales_of(const uint16_t* h, int64_t stride, int64_t groups, __m256 (&scale)[GROUPS]) {
    __m128i x[8], y[8];
    UNROLL for (int c = 0; c < 8; c++) {
      if (groups >= GROUPS) {
        x[c] = _mm_loadu_si128((const __m128i*)(h + c * stride));
      } else {
        uint16_t own[GROUPS] = {};
        for (int64_t g = 0; g < groups; g++) own[g] = h[c * stride + g];
        x[c] = _mm_loadu_si128((const __m128i*)own);
      }
    }
    UNROLL for (int step = 0; step < 3; step++) {  // three perfect shuffles transpose 8 x 8
      UNROLL for (int i = 0; i < 4; i++) y[2 * i] = _mm_unpacklo_epi16(x[i], x[i + 4]), y[2 * i + 1] = _mm_unpackhi_epi16(x[i], x[i + 4]);
      UNROLL for (int i = 0; i < 8; i++) x[i] = y[i];
    }
    UNROLL for (int g = 0; g < GROUPS; g++) scale[g] = _mm256_cvtph_ps(x[g]);
  }

  static __m256 add_group(__m256 sum, __m256i number, const TwoGroups& two, int half, __m256 scale) {
    const __m256i value = _mm256_sub_epi32(number, _mm256_set1_epi32(two.eight[half]));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(value), _mm256_mul_ps(_mm256_set1_ps(two.scale[half]), scale), sum);
  }

  // Two groups of eight columns; of a last one alone where not both.
  template <bool both>
  static __m256 add_two(__m256 sum, const uint8_t* q, int64_t stride, const TwoGroups& two, const __m256* scale) {
    __m256i number[2];
    UNROLL for (int half = 0; half < 2; half++) {
      __m256i codes[4];
      const uint8_t* p = q + 4 * half * stride;
      UNROLL for (int c = 0; c < 4; c++) {
        const __m256i* at = (const __m256i*)(p + c * stride);
        codes[c] = both ? _mm256_loadu_si256(at) : _mm256_zextsi128_si256(_mm_loadu_si128((const __m128i*)at));
        __builtin_prefetch(p + (8 + c) * stride);  // of the next eight columns
      }
      number[half] = S::sums(codes, two);
    }
    sum = add_group(sum, _mm256_permute2x128_si256(number[0], number[1], 0x20), two, 0, scale[0]);
    return both ? add_group(sum, _mm256_permute2x128_si256(number[0], number[1], 0x31), two, 1, scale[1]) : sum;
  }

  // Eight columns from n on. The stride is 0 where there are fewer: then all are the same.
  static __m256 eight_columns(const Weight& w, int64_t n, int64_t codes_stride, int64_t scales_stride, const TwoGroups* two) {
    const uint8_t* q = w.codes + n * w.codes_stride;
    const uint16_t* h = w.scales + n * w.scales_stride;
    __m256 total = _mm256_setzero_ps();
    for (int64_t g = 0, groups = (w.columns + GROUP - 1) / GROUP; g < groups; g += GROUPS, h += GROUPS) {
      __m256 scale[GROUPS], sum = _mm256_setzero_ps();
      const int64_t some = smaller(GROUPS, groups - g);
      scales_of(h, scales_stride, some, scale);
      for (int64_t p = 0; p + 1 < some; p += 2, q += 32, two++) sum = add_two<true>(sum, q, codes_stride, *two, scale + p);
      if (some % 2) sum = add_two<false>(sum, q, codes_stride, *two, scale + some - 1);
      total = g == 0 ? sum : _mm256_add_ps(total, sum);
    }
    return total;
  }

  static void columns(const Weight& w, int64_t n0, int64_t n1, const char* row, float* y) {
    const TwoGroups* two = reinterpret_cast<const TwoGroups*>(row);
    if (w.out < 8) {
      for (int64_t n = n0; n < n1; n++) y[n] = _mm256_cvtss_f32(eight_columns(w, n, 0, 0, two));
      return;
    }
    for (int64_t n = n0; n < n1; n += 8) {
      const int64_t first = smaller(n, w.out - 8);
      const __m256 sums = eight_columns(w, first, w.codes_stride, w.scales_stride, two);
      if (n + 8 <= n1) {
        _mm256_storeu_ps(y + n, sums);
        continue;
      }
      float own[8];
      _mm256_storeu_ps(own, sums);
      for (int64_t i = n; i < n1; i++) y[i] = own[i - first];
    }
  }
};

}  // namespace bespoke::kernels
