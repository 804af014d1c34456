// SPDX-License-Identifier: Apache-2.0
// Rows of 16-bit numbers (digits.h) times int4 codes with AVX-512 and VNNI, tiles of 6 x 32. An instruction adds two products of such
// numbers to a 32-bit sum, which is twice the work of one with floats. A sum of 32 products is at most 2^15 * 8 * 32 = 2^23, a float
// without rounding. Each including file has copies of its own.
#pragma once

#include "kernels/drivers.h"
#include "kernels/loops/direct.h"
#include "kernels/loops/rows_x86.h"
#include "kernels/sets/avx512.h"

namespace bespoke::kernels {
namespace {

struct WordsAvx512 {
  static constexpr int ROWS = 6, PAIRS = GROUP / 2, VECTORS = BLOCK / 16;
  static constexpr int64_t GROUPS_OF_BLOCK = DEPTH / GROUP;

  // ROWS rows of DEPTH summands.
  struct Numbers {
    int16_t of[ROWS][DEPTH];
    float scale[ROWS][GROUPS_OF_BLOCK];
  };

  // BLOCK columns of DEPTH summands: codes of two neighbouring summands side by side.
  struct Panel {
    struct Group {
      __m512i pairs[PAIRS][VECTORS];
      __m512 scale[VECTORS];
    } group[GROUPS_OF_BLOCK];
  };
  static_assert(LORA_PANEL_BYTES <= sizeof(Panel) && sizeof(Panel) <= PANEL_BYTES);

  static void prepare(const Operands& o, int64_t t, int64_t K, char* to) {
    Numbers& rows = *reinterpret_cast<Numbers*>(to);
    for (int r = 0; r < ROWS; r++)
      for (int64_t k = 0; k < K; k += GROUP) {
        float own[GROUP] = {};
        const float* a = t + r < o.rows ? group_of(o.a + (t + r) * o.a_stride, k, K, own) : own;
        const Scale scale = scale_for<ROUNDED_DIGITS>(top_of(a));
        UNROLL for (int64_t i = 0; i < GROUP; i += 16) {
          const __m512i number = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(a + i), _mm512_set1_ps(scale.up)));
          _mm256_storeu_si256((__m256i*)(rows.of[r] + k + i), _mm512_cvtepi32_epi16(number));
        }
        rows.scale[r][k / GROUP] = scale.down;
      }
  }

  // 32 columns of W, the group at k of them.
  static void unpack(const Rows& w, int64_t k, Panel::Group& group) {
    const __m512i nibbles = _mm512_set1_epi32(0x000f000f), eight = _mm512_set1_epi16(8);
    for (int v = 0; v < VECTORS; v++) {
      group.scale[v] = Decode::sixteen_scales(w.scales + 16 * v * w.scales_stride + k / GROUP, w.scales_stride);
      __m512i y[4];
      Decode::sixteen_rows(w.codes + 16 * v * w.codes_stride + k / 2, w.codes_stride, y);
      UNROLL for (int j = 0; j < 4; j++) UNROLL for (int byte = 0; byte < 4; byte++) {
        // The low nibble goes to bit 0 and the high one to bit 16.
        const __m512i low = _mm512_srli_epi32(y[j], 8 * byte), high = _mm512_rolv_epi32(y[j], _mm512_set1_epi32(12 - 8 * byte));
        const __m512i both = _mm512_mask_blend_epi16(0xaaaaaaaa, low, high);
        group.pairs[4 * j + byte][v] = _mm512_sub_epi16(_mm512_and_si512(both, nibbles), eight);
      }
    }
  }

  // Columns [0, n) of c, n at most BLOCK, (+)= R rows times the columns of a panel.
  template <int R>
  static void tile(const Numbers& rows, const Panel& panel, int64_t groups, const Operands& o, float* c, int64_t n) {
    __m512 sum[R][VECTORS];
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < VECTORS; v++) {
      __builtin_prefetch(c + r * o.c_stride + 16 * v, 1);
      sum[r][v] = _mm512_setzero_ps();
    }
    for (int64_t g = 0; g < groups; g++) {
      const Panel::Group& b = panel.group[g];
      __m512i s[R][VECTORS];
      UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < VECTORS; v++) s[r][v] = _mm512_setzero_si512();
      UNROLL for (int p = 0; p < PAIRS; p++) {
        UNROLL for (int r = 0; r < R; r++) {
          int32_t two;
          __builtin_memcpy(&two, rows.of[r] + g * GROUP + 2 * p, 4);
          const __m512i a = _mm512_set1_epi32(two);
          UNROLL for (int v = 0; v < VECTORS; v++) s[r][v] = _mm512_dpwssd_epi32(s[r][v], a, b.pairs[p][v]);
        }
      }
      UNROLL for (int r = 0; r < R; r++) {
        const __m512 scale = _mm512_set1_ps(rows.scale[r][g]);
        UNROLL for (int v = 0; v < VECTORS; v++) sum[r][v] =
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(s[r][v]), _mm512_mul_ps(scale, b.scale[v]), sum[r][v]);
      }
    }
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < VECTORS; v++) {
      float* y = c + r * o.c_stride + 16 * v;
      const __mmask16 there = first_lanes(n - 16 * v);
      _mm512_mask_storeu_ps(y, there, o.first ? sum[r][v] : _mm512_add_ps(_mm512_maskz_loadu_ps(there, y), sum[r][v]));
    }
  }

  // The same of at most R rows.
  template <int R>
  static void some_rows(int64_t count, const Numbers& rows, const Panel& panel, int64_t groups, const Operands& o, float* c, int64_t n) {
    if constexpr (R > 1)
      if (count < R) return some_rows<R - 1>(count, rows, panel, groups, o, c, n);
    tile<R>(rows, panel, groups, o, c, n);
  }

  // Columns [n0, n1) of x W^T
  static void forward(const Weight& w, int64_t n0, int64_t n1, const Operands& x, const char* prepared, char* memory) {
    const Numbers* rows = reinterpret_cast<const Numbers*>(prepared);
    Panel& panel = *reinterpret_cast<Panel*>(memory);
    const int64_t groups = (w.columns + GROUP - 1) / GROUP, tiles = (x.rows + ROWS - 1) / ROWS;
    Gathered last;
    for (int64_t n = n0; n < n1; n += BLOCK) {
      const Rows from = n + BLOCK <= w.out ? rows_of(w, n, 0) : gather(w, n, 0, groups * GROUP, last);
      for (int64_t g = 0; g < groups; g++) unpack(from, g * GROUP, panel.group[g]);
      Ahead ahead = ahead_of(w, n + BLOCK, 0, BLOCK, groups * GROUP / 2);
      for (int64_t t = 0; t < x.rows; t += ROWS) {
        fetch(ahead, (BLOCK + tiles - 1) / tiles);
        some_rows<ROWS>(x.rows - t, rows[t / ROWS], panel, groups, x, x.c + t * x.c_stride + n, smaller(BLOCK, n1 - n));
      }
    }
  }
};

}  // namespace
}  // namespace bespoke::kernels
