// SPDX-License-Identifier: Apache-2.0
// Rows of NEON as whole numbers.
#pragma once

#include <arm_neon.h>

#include "kernels/loops/digits.h"
#include "kernels/loops/weight_rows.h"

namespace bespoke::kernels {

// Loads that follow stay behind what stands before. Compilers load all they can first, and keep sums on the stack for want of registers.
static inline void load_later() { __asm__ volatile("" ::: "memory"); }

static inline uint32_t top_of(const float* x) {
  const uint32x4_t size = vdupq_n_u32(0x7fffffff);
  uint32x4_t top = vdupq_n_u32(0);
  UNROLL for (int i = 0; i < GROUP; i += 4) top = vmaxq_u32(top, vandq_u32(vreinterpretq_u32_f32(vld1q_f32(x + i)), size));
  return vmaxvq_u32(top);
}

// A group of a row: even numbers in v[0] to v[3], odd ones in the others.
static inline void cut_group(const float* x, float up, int32x4_t (&v)[8]) {
  UNROLL for (int i = 0; i < 4; i++) {
    const float32x4x2_t pair = vld2q_f32(x + 8 * i);
    v[i] = vcvtnq_s32_f32(vmulq_n_f32(pair.val[0], up)), v[4 + i] = vcvtnq_s32_f32(vmulq_n_f32(pair.val[1], up));
  }
}

// The digits of 16 numbers, the highest first.
template <int D>
static inline void digits_of(const int32x4_t* x, int8x16_t (&digit)[D]) {
  const int32x4_t offset = vdupq_n_s32(DIGIT_OFFSET<D>);
  int16x8_t v[4];
  UNROLL for (int i = 0; i < 4; i++) v[i] = vreinterpretq_s16_s32(vaddq_s32(x[i], offset));
  const int8x16_t l0 = vreinterpretq_s8_s16(vuzp1q_s16(v[0], v[1])), l1 = vreinterpretq_s8_s16(vuzp1q_s16(v[2], v[3]));
  const int8x16_t flip = vdupq_n_s8(-128);
  digit[D - 2] = veorq_s8(vuzp2q_s8(l0, l1), flip), digit[D - 1] = veorq_s8(vuzp1q_s8(l0, l1), flip);
  if constexpr (D == 3) {
    const int8x16_t h0 = vreinterpretq_s8_s16(vuzp2q_s16(v[0], v[1])), h1 = vreinterpretq_s8_s16(vuzp2q_s16(v[2], v[3]));
    digit[0] = veorq_s8(vuzp1q_s8(h0, h1), flip);
  }
}

static inline int8x16_t low_halves(int8x16_t a, int8x16_t b) {
  return vreinterpretq_s8_s64(vzip1q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}

static inline int8x16_t high_halves(int8x16_t a, int8x16_t b) {
  return vreinterpretq_s8_s64(vzip2q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}

}  // namespace bespoke::kernels
