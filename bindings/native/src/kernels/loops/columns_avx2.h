// SPDX-License-Identifier: Apache-2.0
// Columns of a row in whole numbers times int4 codes with AVX2, eight columns and two groups at a time: 32 bytes of codes are two groups
// of a column. Each including file has copies of its own.
#pragma once

#include "kernels/loops/rows_x86.h"

namespace bespoke::kernels {
namespace {

struct ColumnsAvx2 {
  static constexpr int N = 2, WIDTH = 8;
  using TwoGroups = Groups<2>;

  static __m256 zero() { return _mm256_setzero_ps(); }

  // Scales of eight columns, `groups` of each, as floats by group.
  static void scales_of(const uint16_t* h, int64_t stride, int64_t groups, __m256 (&scale)[GROUPS]) {
    __m128i x[8], y[8];
    UNROLL for (int c = 0; c < 8; c++) {
      __builtin_prefetch(h + (8 + c) * stride);  // of the next eight columns
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

  // Sums of the codes of four columns times two groups: [columns of the first group | of the second]. A byte of the codes times a digit,
  // two neighbours added, is at most 15 * 128 * 2 in size. So 16 bits hold the sums of eight such pairs, which are half a group.
  static __m256i sums(const __m256i (&codes)[4], const TwoGroups& two) {
    const __m256i nibble = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    __m256i even[4], odd[4], total;
    UNROLL for (int c = 0; c < 4; c++) {
      even[c] = _mm256_and_si256(codes[c], nibble);
      odd[c] = _mm256_and_si256(_mm256_srli_epi16(codes[c], 4), nibble);
    }
    UNROLL for (int d = 0; d < DIGITS; d++) {
      const __m256i x = _mm256_load_si256((const __m256i*)two.digits[d][0]), y = _mm256_load_si256((const __m256i*)two.digits[d][1]);
      __m256i s[4];
      UNROLL for (int c = 0; c < 4; c++) s[c] = _mm256_add_epi16(_mm256_maddubs_epi16(even[c], x), _mm256_maddubs_epi16(odd[c], y));
      const __m256i halves = _mm256_hadd_epi16(_mm256_hadd_epi16(s[0], s[1]), _mm256_hadd_epi16(s[2], s[3]));
      const __m256i sum = _mm256_madd_epi16(halves, ones);
      total = d ? _mm256_add_epi32(_mm256_slli_epi32(total, 8), sum) : sum;
    }
    return total;
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
      number[half] = sums(codes, two);
    }
    sum = add_group(sum, _mm256_permute2x128_si256(number[0], number[1], 0x20), two, 0, scale[0]);
    return both ? add_group(sum, _mm256_permute2x128_si256(number[0], number[1], 0x31), two, 1, scale[1]) : sum;
  }

  static __m256 add(__m256 sum, const uint8_t* q, int64_t stride, int64_t groups, const TwoGroups& two, const __m256* scale) {
    return groups > 1 ? add_two<true>(sum, q, stride, two, scale) : add_two<false>(sum, q, stride, two, scale);
  }
};

}  // namespace
}  // namespace bespoke::kernels
