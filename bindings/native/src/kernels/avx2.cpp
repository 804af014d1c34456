// SPDX-License-Identifier: Apache-2.0
// x86-64 with AVX2, FMA and F16C: tiles of 6 x 16, 12 of the 16 registers.
#include <immintrin.h>

#include "table.h"

namespace bespoke::kernels {
namespace {

#define BESPOKE_MR 6
constexpr int VL = 8, MR = BESPOKE_MR, NR = 16, KU = 4;
typedef __m256 vec;
inline vec load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, vec v) { _mm256_storeu_ps(p, v); }
inline vec all(float f) { return _mm256_set1_ps(f); }
inline vec fused(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
inline vec larger(vec a, vec b) { return _mm256_max_ps(a, b); }  // b where a is not a number
inline vec bits_to_exponent(vec shifted) {
  const __m256i n = _mm256_castps_si256(shifted);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
inline vec zero_where_less(vec x, vec limit, vec v) { return _mm256_andnot_ps(_mm256_cmp_ps(x, limit, _CMP_LT_OQ), v); }
inline float half(uint16_t bits) { return _cvtsh_ss(bits); }

#include "bytes_avx2.h"
#include "body.h"
#include "noise.h"

}  // namespace

extern const Table avx2_table = {InstructionSet::Avx2, MR, TALL, WIDE, forward, transposed, row, softmax, elementwise, noise};

}  // namespace bespoke::kernels
