// SPDX-License-Identifier: Apache-2.0
// Rows in whole numbers for x86-64, as digits that lie like the codes of a column: 16 bytes are a group, even summands in low nibbles and
// odd ones in high nibbles. Each including file has copies of its own.
#pragma once

#include <immintrin.h>

#include "kernels/loops/digits.h"
#include "kernels/loops/weight_rows.h"

namespace bespoke::kernels {
namespace {

constexpr int64_t GROUPS = DEPTH / GROUP;  // of one chain

// N groups of a row, as a vector of 16 N bytes holds them.
template <int N>
struct alignas(16 * N) Groups {
  int8_t digits[DIGITS][2][16 * N];  // the highest first; of even summands, of odd ones
  int32_t eight[N];                  // 8 times the sum of the numbers: codes are 8 too large
  float scale[N];
};

inline uint32_t top_of(const float* x) {
  const __m256i size = _mm256_set1_epi32(0x7fffffff);
  __m256i top = _mm256_setzero_si256();
  UNROLL for (int i = 0; i < GROUP; i += 8) top =
      _mm256_max_epi32(top, _mm256_and_si256(_mm256_loadu_si256((const __m256i*)(x + i)), size));
  __m128i t = _mm_max_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
  t = _mm_max_epi32(t, _mm_shuffle_epi32(t, 0x4e));
  t = _mm_max_epi32(t, _mm_shuffle_epi32(t, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(t));
}

template <int N>
struct RowsX86 {
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
    for (int64_t k = 0; k < K; k += N * GROUP, to += sizeof(Groups<N>)) {
      Groups<N>& groups = *reinterpret_cast<Groups<N>*>(to);
      for (int g = 0; g < N; g++) {
        float own[GROUP];
        const float* a = group_of(x, k + g * GROUP, K, own);
        const Scale scale = scale_for<DIGITS>(top_of(a));
        __m256i v[4];
        UNROLL for (int i = 0; i < 4; i++) v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(a + 8 * i), _mm256_set1_ps(scale.up)));
        const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(v[0], v[1]), _mm256_add_epi32(v[2], v[3]));
        groups.eight[g] = static_cast<int32_t>(8 * static_cast<uint32_t>(sum_of(sum)));
        groups.scale[g] = scale.down;
        UNROLL for (int i = 0; i < 4; i++) v[i] = _mm256_add_epi32(v[i], _mm256_set1_epi32(DIGIT_OFFSET<DIGITS>));
        UNROLL for (int d = 0; d < DIGITS; d++)
            put_digit(v, 8 * (DIGITS - 1 - d), groups.digits[d][0] + 16 * g, groups.digits[d][1] + 16 * g);
      }
    }
  }
};

}  // namespace
}  // namespace bespoke::kernels
