// SPDX-License-Identifier: Apache-2.0
// Products that read the rows of the other operand where they lie, and multiply a decoded panel by them. Every element of a result is one
// chain of fused multiply-adds over DEPTH summands, then added to what was there: the same bits in each instruction set that has them.
#pragma once

#include <utility>

#include "kernels/loops/weight_rows.h"

namespace bespoke::kernels {

// Rows of W that the next panel decodes, on their way to the cache while this one is multiplied: they are read in short pieces far
// apart, which processors do not foresee.
struct Ahead {
  const char *codes, *scales;
  int64_t codes_stride, scales_stride;  // bytes
  int64_t bytes;                        // of codes in a row
  int64_t left;
};

static inline Ahead ahead_of(const Weight& w, int64_t n, int64_t k, int64_t rows, int64_t bytes) {
  return {(const char*)(w.codes + n * w.codes_stride + k / 2),
          (const char*)(w.scales + n * w.scales_stride + k / GROUP),
          w.codes_stride,
          2 * w.scales_stride,
          bytes,
          smaller(rows, w.out - n)};
}

static inline void fetch(Ahead& a, int64_t rows) {
  for (; rows > 0 && a.left > 0; rows--, a.left--, a.codes += a.codes_stride, a.scales += a.scales_stride) {
    for (int64_t b = 0; b < a.bytes; b += 64) __builtin_prefetch(a.codes + b, 0, 2);
    __builtin_prefetch(a.scales, 0, 2);
  }
}

// S: VL floats in `vec`, load, store, all, fused (a * b + c); tiles of MR rows and NR columns; `multiply_add`, which adds the products
// of a multiple of STEP summands to a tile of zeros; `rows_of_four`, four floats of every fourth row; and `transpose_four`, which
// exchanges rows and columns of 4 x 4 floats. Decode: decode_transposed and decode_rows.
template <class S, class Decode>
struct Direct {
  using vec = typename S::vec;
  static constexpr int VL = S::VL, MR = S::MR, NR = S::NR, NV = NR / VL, STEP = S::STEP;

  // Rows of the next tile when `left` remain. A last tile of few rows has too few independent multiply-adds to hide their latency,
  // so the last two share theirs instead.
  static int64_t tile_rows(int64_t left) {
    if (left <= MR) return left;
    return left < MR + MR / 2 ? (left + 1) / 2 : MR;
  }

  // c[R][NR] (+)= a[R][K] b[K][NR]
  template <int R>
  static void tile(const float* a, int64_t a_stride, const float* b, int64_t K, float* c, int64_t c_stride, bool first, const float* keep) {
    constexpr int P = (R + S::ROWS_PER_POINTER - 1) / S::ROWS_PER_POINTER;
    vec sum[R][NV];
    const float* p[P];
    UNROLL for (int i = 0; i < P; i++) p[i] = a + S::ROWS_PER_POINTER * i * a_stride;
    UNROLL for (int r = 0; r < R; r++) {
      UNROLL for (int v = 0; v < NR; v += 16) __builtin_prefetch(c + r * c_stride + v + 15, 1);
      UNROLL for (int v = 0; v < NV; v++) sum[r][v] = S::all(0.0f);
    }
    int64_t k = K / STEP * STEP;
    if (k) S::template multiply_add<R>(p, a_stride, b, k, sum);
    for (; k < K; k++) {
      UNROLL for (int r = 0; r < R; r++) {
        const vec f = S::all(p[r / S::ROWS_PER_POINTER][r % S::ROWS_PER_POINTER * a_stride + k]);
        UNROLL for (int v = 0; v < NV; v++) sum[r][v] = S::fused(f, S::load(b + k * NR + v * VL), sum[r][v]);
      }
    }
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < NV; v++) {
      float* y = c + r * c_stride + v * VL;
      if (keep)
        S::store(y, S::fused(S::load(y), S::all(keep[r]), sum[r][v]));
      else if (first)
        S::store(y, sum[r][v]);
      else
        S::store(y, S::load(y) + sum[r][v]);
    }
  }

  typedef void (*Tile)(const float*, int64_t, const float*, int64_t, float*, int64_t, bool, const float*);
  template <int... r>
  static Tile tile_of(int64_t rows, std::integer_sequence<int, r...>) {
    static constexpr Tile tiles[] = {tile<r + 1>...};
    return tiles[rows - 1];
  }

  // Columns [0, n) of c, n at most BLOCK, (+)= a[rows][K] panel[K][BLOCK]; the panel is BLOCK / NR strips of [pitch][NR].
  static void multiply(const Operands& o, const float* a, const float* panel, int64_t pitch, int64_t K, float* c, int64_t n, bool first,
                       Ahead ahead) {
    const int64_t step = ahead.left * MR * NR / (smaller(n, BLOCK) * o.rows) + 1;
    for (int64_t s = 0; s < n; s += NR) {
      const bool whole = s + NR <= n;
      for (int64_t t = 0, r; t < o.rows; t += r) {
        r = tile_rows(o.rows - t);
        fetch(ahead, step);
        const Tile tile = tile_of(r, std::make_integer_sequence<int, MR>());
        const float* keep = first && o.keep ? o.keep + t : nullptr;
        float* y = c + t * o.c_stride + s;
        if (whole) {
          tile(a + t * o.a_stride, o.a_stride, panel + s * pitch, K, y, o.c_stride, first, keep);
          continue;
        }
        float edge[MR * NR];  // beyond the last column there is nothing to write to
        for (int64_t i = 0; i < r; i++)
          for (int64_t j = s; j < n; j++) edge[i * NR + j - s] = y[i * o.c_stride + j - s];
        tile(a + t * o.a_stride, o.a_stride, panel + s * pitch, K, edge, NR, first, keep);
        for (int64_t i = 0; i < r; i++)
          for (int64_t j = s; j < n; j++) y[i * o.c_stride + j - s] = edge[i * NR + j - s];
      }
    }
  }

  // A panel holds BLOCK columns as strips of NR; column 16 is in the next strip, or further along the first.
  static int64_t half_panel(int64_t pitch) { return NR == 32 ? 16 : 16 * pitch; }

  // Columns [n0, n1) of x W^T
  static void forward(const Weight& w, int64_t n0, int64_t n1, const Operands& x, float* panel) {
    Gathered last;
    for (int64_t k0 = 0; k0 < w.columns; k0 += DEPTH) {
      const int64_t K = smaller(DEPTH, w.columns - k0), pitch = (K + 31) / 32 * 32;
      for (int64_t n = n0; n < n1; n += BLOCK) {
        const Rows rows = n + BLOCK <= w.out ? rows_of(w, n, k0) : gather(w, n, k0, pitch, last);
        for (int64_t k = 0; k < pitch; k += 32) Decode::decode_transposed(rows, k, panel + k * NR, half_panel(pitch));
        const bool more = n + BLOCK < n1;
        multiply(x, x.a + k0, panel, pitch, K, x.c + n, smaller(BLOCK, n1 - n), k0 == 0,
                 more ? ahead_of(w, n + BLOCK, k0, BLOCK, DEPTH / 2)
                      : ahead_of(w, n0, smaller(k0 + DEPTH, w.columns - 1), k0 + DEPTH < w.columns ? BLOCK : 0, DEPTH / 2));
      }
    }
  }

  // Columns [n0, n1) of g W
  static void transposed(const Weight& w, int64_t n0, int64_t n1, const Operands& g, float* panel) {
    for (int64_t k0 = 0; k0 < w.out; k0 += DEPTH) {
      const int64_t K = smaller(DEPTH, w.out - k0);
      for (int64_t n = n0; n < n1; n += BLOCK) {
        Decode::decode_rows(w, k0, K, n, panel, half_panel(K));
        const bool more = n + BLOCK < n1;
        multiply(g, g.a + k0, panel, K, K, g.c + n, smaller(BLOCK, n1 - n), k0 == 0,
                 more ? ahead_of(w, k0, n + BLOCK, K, BLOCK / 2) : ahead_of(w, k0 + K, n0, DEPTH, BLOCK / 2));
      }
    }
  }

  // ---- panels of floats ----

  // BLOCK columns of K numbers, each of which lies in a row of its own, as strips of [K][NR]. Those that cannot be read are zeros.
  static void panel_of_columns(const float* rows, int64_t stride, int64_t readable, int64_t K, float* panel) {
    for (int64_t s = 0; s < BLOCK; s += NR, panel += K * NR) {
      const int64_t whole = readable >= s + NR ? K / 4 * 4 : 0;
      for (int64_t j = 0; whole > 0 && j < NR; j += VL)
        for (int64_t k = 0; k < whole; k += 4) {
          vec x[4];
          UNROLL for (int i = 0; i < 4; i++) x[i] = S::rows_of_four(rows + (s + j + i) * stride + k, stride);
          S::transpose_four(x);
          UNROLL for (int i = 0; i < 4; i++) S::store(panel + (k + i) * NR + j, x[i]);
        }
      for (int64_t k = whole; k < K; k++)
        for (int64_t j = 0; j < NR; j++) panel[k * NR + j] = s + j < readable ? rows[(s + j) * stride + k] : 0.0f;
    }
  }

  // BLOCK columns of K rows, or as many as there are, as strips of [K][NR].
  static void panel_of_rows(const float* rows, int64_t stride, int64_t K, int64_t columns, float* panel) {
    for (int64_t s = 0; s < BLOCK && s < columns; s += NR, panel += K * NR)
      for (int64_t k = 0; k < K; k++) {
        const float* from = rows + k * stride + s;
        float* to = panel + k * NR;
        if (s + NR <= columns) {
          UNROLL for (int v = 0; v < NR; v += VL) S::store(to + v, S::load(from + v));
          continue;
        }
        for (int64_t i = 0; i < NR; i++) to[i] = s + i < columns ? from[i] : 0.0f;
      }
  }

  // Columns [n0, n1) of c += factor h b'
  static void add_lora(const Lora& lora, int64_t t, int64_t n0, int64_t n1, const Operands& o, float* panel) {
    const int64_t rank = lora.rank;
    const Operands h = {lora.h + t * rank, rank, o.rows, o.c, o.c_stride, nullptr, false};
    for (int64_t n = n0; n < n1; n += BLOCK) {
      const int64_t count = smaller(BLOCK, n1 - n);
      if (lora.transposed)
        panel_of_columns(lora.b + n * lora.b_stride, lora.b_stride, count, rank, panel);
      else
        panel_of_rows(lora.b + n, lora.b_stride, rank, count, panel);
      for (int64_t i = 0, end = (count + NR - 1) / NR * NR * rank; i < end; i += VL)
        S::store(panel + i, S::all(lora.factor) * S::load(panel + i));
      multiply(h, h.a, panel, rank, rank, o.c + n, count, false, Ahead{});
    }
  }

  static void row(const Weight& w, int64_t index, float* y) {
    float group[BLOCK];
    for (int64_t n = 0; n < w.columns; n += BLOCK) {
      if (n + BLOCK <= w.columns) {
        Decode::decode_rows(w, index, 1, n, y + n, 16);
        continue;
      }
      Decode::decode_rows(w, index, 1, n, group, 16);
      for (int64_t j = n; j < w.columns; j++) y[j] = group[j - n];
    }
  }
};

// K summands of R rows times as many rows of a strip, STEP at a time: a summand is copied to all elements of a vector.
template <class S, int STEP>
struct ByBroadcast {
  template <int R, class vec, size_t P, int NV>
  static void multiply_add(const float* const (&rows)[P], int64_t a_stride, const float* b, int64_t K, vec (&sum)[R][NV]) {
    constexpr int per_pointer = S::ROWS_PER_POINTER;
    const float* p[P];
    UNROLL for (size_t i = 0; i < P; i++) p[i] = rows[i];
    for (int64_t k = 0; k < K; k += STEP, b += STEP * S::NR) {
      UNROLL for (int u = 0; u < STEP; u++) {
        vec x[NV];
        UNROLL for (int v = 0; v < NV; v++) x[v] = S::load(b + u * S::NR + v * S::VL);
        UNROLL for (int r = 0; r < R; r++) {
          const vec f = S::all(p[r / per_pointer][r % per_pointer * a_stride + u]);
          UNROLL for (int v = 0; v < NV; v++) sum[r][v] = S::fused(f, x[v], sum[r][v]);
        }
      }
      UNROLL for (size_t i = 0; i < P; i++) p[i] += STEP;
    }
  }
};

}  // namespace bespoke::kernels
