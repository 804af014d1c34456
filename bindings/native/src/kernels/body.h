// SPDX-License-Identifier: Apache-2.0
// The inner loops, in terms of the vectors that the including file defines in its own unnamed namespace: VL floats in `vec`,
// load, store, all, fused (a * b + c), and tiles of MR x NR. Every element of a result is one chain of fused multiply-adds over
// DEPTH summands, then added to what was there: the same bits in each instruction set that has fused multiply-adds.
#pragma once

constexpr int NV = NR / VL;

#if !defined(__AVX512F__)  // which decodes as avx512.h says
#include "decode.h"
#if defined(BESPOKE_BYTES)
#include "decode_bytes.h"
#else
#include "decode_scalar.h"
#endif
#endif

// Rows of the next tile when `left` remain. A last tile of few rows has too few independent multiply-adds to hide their latency,
// so the last two share theirs instead.
inline int64_t tile_rows(int64_t left) {
  if (left <= MR) return left;
  return left < MR + MR / 2 ? (left + 1) / 2 : MR;
}

// c[R][NR] (+)= a[R][K] b[K][NR]. Rows of a are addressed three to a pointer, which is what x86 can without arithmetic.
template <int R>
void tile(const float* a, int64_t a_stride, const float* b, int64_t K, float* c, int64_t c_stride, bool first, const float* keep) {
  constexpr int P = (R + 2) / 3;
  vec sum[R][NV];
  const float* p[P];
  UNROLL for (int i = 0; i < P; i++) p[i] = a + 3 * i * a_stride;
  UNROLL for (int r = 0; r < R; r++) {
    UNROLL for (int v = 0; v < NR; v += 16) __builtin_prefetch(c + r * c_stride + v + 15, 1);
    UNROLL for (int v = 0; v < NV; v++) sum[r][v] = all(0.0f);
  }
  int64_t k = 0;
  for (; k + KU <= K; k += KU) {
    // The next DEPTH summands, while these are added: a few lines at a time, since the way to memory takes few at once.
    if (KU == 16) UNROLL for (int r = 0; r < R; r++) __builtin_prefetch(p[r / 3] + r % 3 * a_stride + DEPTH, 0, 2);
    UNROLL for (int u = 0; u < KU; u++) {
      vec x[NV];
      UNROLL for (int v = 0; v < NV; v++) x[v] = load(b + u * NR + v * VL);
      UNROLL for (int r = 0; r < R; r++) {
        const vec f = all(p[r / 3][r % 3 * a_stride + u]);
        UNROLL for (int v = 0; v < NV; v++) sum[r][v] = fused(f, x[v], sum[r][v]);
      }
    }
    UNROLL for (int i = 0; i < P; i++) p[i] += KU;
    b += KU * NR;
  }
  for (; k < K; k++, b += NR) {
    UNROLL for (int r = 0; r < R; r++) {
      const vec f = all(p[r / 3][r % 3 * a_stride]);
      UNROLL for (int v = 0; v < NV; v++) sum[r][v] = fused(f, load(b + v * VL), sum[r][v]);
    }
    UNROLL for (int i = 0; i < P; i++) p[i]++;
  }
  UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < NV; v++) {
    float* y = c + r * c_stride + v * VL;
    if (keep)
      store(y, fused(load(y), all(keep[r]), sum[r][v]));
    else if (first)
      store(y, sum[r][v]);
    else
      store(y, load(y) + sum[r][v]);
  }
}

typedef void (*Tile)(const float*, int64_t, const float*, int64_t, float*, int64_t, bool, const float*);
constexpr Tile tiles[] = {
    nullptr, tile<1>, tile<2>, tile<3>,  tile<4>,  tile<5>,  tile<6>,
#if BESPOKE_MR > 6
    tile<7>, tile<8>, tile<9>, tile<10>, tile<11>, tile<12>,
#endif
};

// Rows of W that the next panel decodes, on their way to the cache while this one is multiplied: they are read in short pieces far
// apart, which processors do not foresee.
struct Ahead {
  const char *codes, *scales;
  int64_t codes_stride, scales_stride;  // bytes
  int64_t bytes;                        // of codes in a row
  int64_t left;

  void fetch(int64_t rows) {
    for (; rows > 0 && left > 0; rows--, left--, codes += codes_stride, scales += scales_stride) {
      for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(codes + b, 0, 2);
      __builtin_prefetch(scales, 0, 2);
    }
  }
};

inline Ahead ahead_of(const Weight& w, int64_t n, int64_t k, int64_t rows, int64_t bytes) {
  return {(const char*)(w.codes + n * w.codes_stride + k / 2),
          (const char*)(w.scales + n * w.scales_stride + k / 32),
          w.codes_stride,
          2 * w.scales_stride,
          bytes,
          smaller(rows, w.out - n)};
}

// Columns [0, n) of c, n at most BLOCK, (+)= a[rows][K] panel[K][BLOCK]; the panel is BLOCK / NR strips of [pitch][NR].
void multiply(const Operands& o, const float* a, const float* panel, int64_t pitch, int64_t K, float* c, int64_t n, bool first,
              Ahead ahead) {
  const int64_t step = ahead.left * MR * NR / (smaller(n, BLOCK) * o.rows) + 1;
  for (int64_t s = 0; s < n; s += NR) {
    const bool whole = s + NR <= n;
    for (int64_t t = 0, r; t < o.rows; t += r) {
      r = tile_rows(o.rows - t);
      ahead.fetch(step);
      const float* keep = first && o.keep ? o.keep + t : nullptr;
      float* y = c + t * o.c_stride + s;
      if (whole) {
        tiles[r](a + t * o.a_stride, o.a_stride, panel + s * pitch, K, y, o.c_stride, first, keep);
        continue;
      }
      float edge[MR * NR];  // beyond the last column there is nothing to write to
      for (int64_t i = 0; i < r; i++)
        for (int64_t j = s; j < n; j++) edge[i * NR + j - s] = y[i * o.c_stride + j - s];
      tiles[r](a + t * o.a_stride, o.a_stride, panel + s * pitch, K, edge, NR, first, keep);
      for (int64_t i = 0; i < r; i++)
        for (int64_t j = s; j < n; j++) y[i * o.c_stride + j - s] = edge[i * NR + j - s];
    }
  }
}

// A panel holds BLOCK columns as strips of NR; column 16 is in the next strip, or further along the first.
inline int64_t half_panel(int64_t pitch) { return NR == 32 ? 16 : 16 * pitch; }

void forward(const Weight& w, int64_t n0, int64_t n1, const Operands& x, float* panel) {
  Gathered last;
  for (int64_t k0 = 0; k0 < w.columns; k0 += DEPTH) {
    const int64_t K = smaller(DEPTH, w.columns - k0), pitch = (K + 31) / 32 * 32;
    for (int64_t n = n0; n < n1; n += BLOCK) {
      const Rows rows = n + BLOCK <= w.out ? rows_of(w, n, k0) : gather(w, n, k0, pitch, last);
      for (int64_t k = 0; k < pitch; k += 32) decode_transposed(rows, k, panel + k * NR, half_panel(pitch));
      const bool more = n + BLOCK < n1;
      multiply(x, x.a + k0, panel, pitch, K, x.c + n, smaller(BLOCK, n1 - n), k0 == 0,
               more ? ahead_of(w, n + BLOCK, k0, BLOCK, DEPTH / 2)
                    : ahead_of(w, n0, smaller(k0 + DEPTH, w.columns - 1), k0 + DEPTH < w.columns ? BLOCK : 0, DEPTH / 2));
    }
  }
}

void transposed(const Weight& w, int64_t n0, int64_t n1, const Operands& g, float* panel) {
  for (int64_t k0 = 0; k0 < w.out; k0 += DEPTH) {
    const int64_t K = smaller(DEPTH, w.out - k0);
    for (int64_t n = n0; n < n1; n += BLOCK) {
      decode_rows(w, k0, K, n, panel, half_panel(K));
      const bool more = n + BLOCK < n1;
      multiply(g, g.a + k0, panel, K, K, g.c + n, smaller(BLOCK, n1 - n), k0 == 0,
               more ? ahead_of(w, k0, n + BLOCK, K, BLOCK / 2) : ahead_of(w, k0 + K, n0, DEPTH, BLOCK / 2));
    }
  }
}

void row(const Weight& w, int64_t index, float* y) {
  float group[BLOCK];
  for (int64_t n = 0; n < w.columns; n += BLOCK) {
    if (n + BLOCK <= w.columns) {
      decode_rows(w, index, 1, n, y + n, 16);
      continue;
    }
    decode_rows(w, index, 1, n, group, 16);
    for (int64_t j = n; j < w.columns; j++) y[j] = group[j - n];
  }
}

#include "softmax.h"
#include "elementwise.h"
