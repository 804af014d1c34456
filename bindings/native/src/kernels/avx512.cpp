// SPDX-License-Identifier: Apache-2.0
// x86-64 with AVX-512 (F, BW, DQ, VL): tiles of 12 x 32, 24 of the 32 registers.
#include "avx512.h"

namespace bespoke::kernels {
namespace {

#define BESPOKE_MR 12
constexpr int MR = BESPOKE_MR, KU = 16;
inline vec larger(vec a, vec b) { return _mm512_max_ps(a, b); }  // b where a is not a number
inline vec bits_to_exponent(vec shifted) {
  const __m512i n = _mm512_castps_si512(shifted);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23));
}
inline vec zero_where_less(vec x, vec limit, vec v) { return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), v); }

#include "body.h"
#include "noise.h"

}  // namespace

extern const Table avx512_table = {InstructionSet::Avx512, MR, TALL, WIDE, forward, transposed, row, softmax, elementwise, noise};

}  // namespace bespoke::kernels
