// SPDX-License-Identifier: Apache-2.0
// Vectors of NEON, and what its tables are made of. Each including file has copies of its own.
#pragma once

#include <arm_neon.h>

#include "kernels/loops/decode_bytes.h"

namespace bespoke::kernels {
namespace {

struct Vectors {
  static constexpr int VL = 4, NR = 16, ROWS_PER_POINTER = 2;
  typedef float32x4_t vec;
  static vec load(const float* p) { return vld1q_f32(p); }
  static void store(float* p, vec v) { vst1q_f32(p, v); }
  static vec all(float f) { return vdupq_n_f32(f); }
  static vec fused(vec a, vec b, vec c) { return vfmaq_f32(c, a, b); }
  static vec larger(vec a, vec b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
  static vec bits_to_exponent(vec shifted) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vreinterpretq_s32_f32(shifted), vdupq_n_s32(127)), 23));
  }
  static vec zero_where_less(vec x, vec limit, vec v) { return vbslq_f32(vcltq_f32(x, limit), vdupq_n_f32(0), v); }
  static float half(uint16_t bits) {
    __fp16 h;
    __builtin_memcpy(&h, &bits, 2);
    return h;
  }
  static vec rows_of_four(const float* p, int64_t) { return vld1q_f32(p); }
  static void transpose_four(vec (&x)[4]) {
    const float32x4x2_t a = vzipq_f32(x[0], x[2]), b = vzipq_f32(x[1], x[3]);
    const float32x4x2_t c = vzipq_f32(a.val[0], b.val[0]), d = vzipq_f32(a.val[1], b.val[1]);
    x[0] = c.val[0], x[1] = c.val[1], x[2] = d.val[0], x[3] = d.val[1];
  }

  static constexpr int HALVES = 1;
  typedef uint8x16_t bytes;
  typedef float floats __attribute__((vector_size(16), aligned(4), may_alias));
  static bytes zip8_low(bytes a, bytes b) { return vzip1q_u8(a, b); }
  static bytes zip8_high(bytes a, bytes b) { return vzip2q_u8(a, b); }
  static bytes zip16_low(bytes a, bytes b) { return (bytes)vzip1q_u16((uint16x8_t)a, (uint16x8_t)b); }
  static bytes zip16_high(bytes a, bytes b) { return (bytes)vzip2q_u16((uint16x8_t)a, (uint16x8_t)b); }
  static bytes load_bytes(const uint8_t* p, int64_t) { return vld1q_u8(p); }
  static bytes runs_of_four(bytes v) { return v; }
};

}  // namespace
}  // namespace bespoke::kernels
