// SPDX-License-Identifier: Apache-2.0
// int4 to fp32 without conversions: a nibble goes into the mantissa of 0.5, giving f = 0.5 + nibble / 32, and the value is
// f * 32 scale - 24 scale, whose steps are exact too. On 16 or 32 bytes at a time, by zips that work within 16.
#pragma once

#include "kernels/loops/weight_rows.h"

namespace bespoke::kernels {

// S: `bytes`, which are HALVES of 16, `floats` of the same size, which may lie anywhere, zips within a half, `load_bytes`,
// `runs_of_four`, `half`; and NR, the columns of a strip of the panel.
template <class S>
struct DecodeBytes {
  using bytes = typename S::bytes;
  using floats = typename S::floats;
  static constexpr int L = S::HALVES;

  static bytes low(bytes v) { return (v << 3) & 0x78; }  // nibbles to bits 3..6 of their bytes
  static bytes high(bytes v) { return (v >> 1) & 0x78; }

  // 16 L weights to columns 0.. of a row of the panel, whose columns from 16 are `strip` floats further.
  // Each half of v holds four runs of four; run i of all halves make the columns from 4 L i.
  static void put(float* o, int64_t strip, bytes v, const floats* s32, const floats* s24) {
    const bytes exponent = v * 0 + 0x3f, zero = v * 0;
    const bytes a = S::zip8_low(v, exponent), b = S::zip8_high(v, exponent);
    const bytes f[4] = {S::zip16_low(zero, a), S::zip16_high(zero, a), S::zip16_low(zero, b), S::zip16_high(zero, b)};
    UNROLL for (int i = 0; i < 4; i++) {
      const int n = 4 * L * i;
      *(floats*)(o + n / 16 * strip + n % 16) = (floats)f[i] * s32[i] - s24[i];
    }
  }

  // 32 rows of W, the group at column k of them, transposed into the columns of 32 rows of the panel.
  static void decode_transposed(const Rows& w, int64_t k, float* o, int64_t strip) {
    for (int c = 0; c < BLOCK; c += 16 * L, o += strip) {
      const int64_t stride = w.codes_stride;
      const uint8_t* q = w.codes + c * stride + k / 2;
      const uint16_t* h = w.scales + c * w.scales_stride + k / GROUP;
      float scale[16 * L];
      for (int i = 0; i < 16 * L; i++) scale[i] = S::half(h[i * w.scales_stride]);
      floats s32[4], s24[4];
      UNROLL for (int i = 0; i < 4; i++) s32[i] = *(floats*)(scale + 4 * L * i) * 32, s24[i] = *(floats*)(scale + 4 * L * i) * 24;
      bytes x[16], y[16];
      UNROLL for (int i = 0; i < 16; i++) x[i] = S::load_bytes(q + (i / 4 * 4 * L + i % 4) * stride, 4 * stride);
      UNROLL for (int step = 0; step < 4; step++) {  // four perfect shuffles transpose 16 x 16 bytes
        UNROLL for (int i = 0; i < 8; i++) y[2 * i] = S::zip8_low(x[i], x[i + 8]), y[2 * i + 1] = S::zip8_high(x[i], x[i + 8]);
        UNROLL for (int i = 0; i < 16; i++) x[i] = y[i];
      }
      UNROLL for (int j = 0; j < 16; j++) {
        put(o + 2 * j * S::NR, strip, low(x[j]), s32, s24);
        put(o + (2 * j + 1) * S::NR, strip, high(x[j]), s32, s24);
      }
    }
  }

  // K rows of W from row n, one group at column k, into as many rows of the panel.
  static void decode_rows(const Weight& w, int64_t n, int64_t K, int64_t k, float* o, int64_t strip) {
    const uint8_t* q = w.codes + n * w.codes_stride + k / 2;
    const uint16_t* h = w.scales + n * w.scales_stride + k / GROUP;
    for (int64_t i = 0; i < K; i++, q += w.codes_stride, h += w.scales_stride, o += S::NR) {
      const bytes v = S::load_bytes(q, 0);
      const float f = S::half(*h);
      const floats a = floats{} + f * 32, b = floats{} + f * 24, s32[4] = {a, a, a, a}, s24[4] = {b, b, b, b};
      if (L == 2) {
        const bytes u = S::runs_of_four(v);
        put(o, strip, S::zip8_low(low(u), high(u)), s32, s24);
      } else {
        put(o + strip, strip, S::zip8_high(low(v), high(v)), s32, s24);
        put(o, strip, S::zip8_low(low(v), high(v)), s32, s24);
      }
    }
  }
};

}  // namespace bespoke::kernels
