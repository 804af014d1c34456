// SPDX-License-Identifier: Apache-2.0
// Rows of W as they lie in memory: what all ways to decode them begin with. Decoding is exact, since (nibble - 8) * scale has at most
// 4 + 11 significant bits.
#pragma once

#include "kernels/table.h"

#define UNROLL _Pragma("GCC unroll 32")

namespace bespoke::kernels {

// 32 rows of W from some column on.
struct Rows {
  const uint8_t* codes;
  const uint16_t* scales;
  int64_t codes_stride, scales_stride;
};

static inline Rows rows_of(const Weight& w, int64_t n, int64_t k) {
  return {w.codes + n * w.codes_stride + k / 2, w.scales + n * w.scales_stride + k / GROUP, w.codes_stride, w.scales_stride};
}

// The last rows of W where fewer than 32 are left: the last one stands for those that do not exist.
struct Gathered {
  uint8_t codes[BLOCK * DEPTH / 2];
  uint16_t scales[BLOCK * DEPTH / GROUP];
};

static inline Rows gather(const Weight& w, int64_t n, int64_t k, int64_t columns, Gathered& to) {
  for (int64_t i = 0; i < BLOCK; i++) {
    const Rows from = rows_of(w, smaller(n + i, w.out - 1), k);
    __builtin_memcpy(to.codes + i * DEPTH / 2, from.codes, columns / 2);
    __builtin_memcpy(to.scales + i * DEPTH / GROUP, from.scales, columns / GROUP * 2);
  }
  return {to.codes, to.scales, DEPTH / 2, DEPTH / GROUP};
}

}  // namespace bespoke::kernels
