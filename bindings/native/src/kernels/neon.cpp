// SPDX-License-Identifier: Apache-2.0
// arm64: tiles of 6 x 16, 24 of the 32 registers.
#include <arm_neon.h>

#include "table.h"

namespace bespoke::kernels {
namespace {

#define BESPOKE_MR 6
#define BESPOKE_BYTES 1
constexpr int VL = 4, MR = BESPOKE_MR, NR = 16, KU = 1;
typedef float32x4_t vec;
inline vec load(const float* p) { return vld1q_f32(p); }
inline void store(float* p, vec v) { vst1q_f32(p, v); }
inline vec all(float f) { return vdupq_n_f32(f); }
inline vec fused(vec a, vec b, vec c) { return vfmaq_f32(c, a, b); }
inline vec larger(vec a, vec b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
inline vec bits_to_exponent(vec shifted) {
  return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vreinterpretq_s32_f32(shifted), vdupq_n_s32(127)), 23));
}
inline vec zero_where_less(vec x, vec limit, vec v) { return vbslq_f32(vcltq_f32(x, limit), vdupq_n_f32(0), v); }
inline float half(uint16_t bits) {
  __fp16 h;
  __builtin_memcpy(&h, &bits, 2);
  return h;
}

typedef uint8x16_t bytes;
inline bytes zip8_low(bytes a, bytes b) { return vzip1q_u8(a, b); }
inline bytes zip8_high(bytes a, bytes b) { return vzip2q_u8(a, b); }
inline bytes zip16_low(bytes a, bytes b) { return (bytes)vzip1q_u16((uint16x8_t)a, (uint16x8_t)b); }
inline bytes zip16_high(bytes a, bytes b) { return (bytes)vzip2q_u16((uint16x8_t)a, (uint16x8_t)b); }
inline bytes load_bytes(const uint8_t* p, int64_t) { return vld1q_u8(p); }
inline bytes runs_of_four(bytes v) { return v; }

#include "body.h"
#include "noise.h"

}  // namespace

extern const Table neon_table = {InstructionSet::Neon, MR, TALL, WIDE, forward, transposed, row, softmax, elementwise, noise};

}  // namespace bespoke::kernels
