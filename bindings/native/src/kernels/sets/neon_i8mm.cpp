// SPDX-License-Identifier: Apache-2.0
// arm64 with products of matrices of bytes (FEAT_I8MM: Cortex-A510, A710 and X2 on, Apple A15 on): x W^T in whole numbers, tiles of 4 x 8.
// Of g W, a scale belongs to the summand and not to the column: rows would have to be cut again for each group of columns, which takes
// longer than floats do. So that is neon.cpp's.
#include "kernels/drivers.h"
#include "kernels/loops/digits_neon.h"

namespace bespoke::kernels {
namespace {

constexpr int PAIRS = 2, COLUMN_PAIRS = 4;  // of a tile: SMMLA multiplies two rows by two columns
constexpr int STEPS = GROUP / 8;            // it takes eight summands of each
constexpr int64_t GROUPS = DEPTH / GROUP;
constexpr int64_t ROWS = 2 * PAIRS, COLUMNS = 2 * COLUMN_PAIRS;

// ROWS rows of DEPTH summands, in numbers of D digits.
template <int D>
struct Rows4 {
  struct Group {
    int8x16_t digits[D][STEPS][PAIRS];  // eight summands of a row, then of the next
    float32x4_t scale[PAIRS];           // row, row, next, next
  } group[GROUPS];
};

// BLOCK columns of DEPTH summands.
struct Panel {
  struct Group {
    int8x16_t codes[STEPS][COLUMN_PAIRS];  // eight summands of a column, then of the one two further
    float32x4_t scale[COLUMN_PAIRS];       // column, two further, column, two further
  } group[BLOCK / COLUMNS][GROUPS];
};
static_assert(LORA_PANEL_BYTES <= sizeof(Panel) && sizeof(Panel) <= PANEL_BYTES);

// Columns of a pair are two apart, so that zips give four neighbours.
constexpr int64_t first_column(int pair) { return pair / 2 * 4 + pair % 2; }

template <int D>
void prepare(const Operands& o, int64_t t, int64_t K, char* to) {
  Rows4<D>& rows = *reinterpret_cast<Rows4<D>*>(to);
  for (int64_t k = 0, g = 0; k < K; k += GROUP, g++)
    for (int p = 0; p < PAIRS; p++) {
      int8x16_t digit[2][2][D];  // of the two rows: of even summands, of odd ones
      float scales[4];
      for (int r = 0; r < 2; r++) {
        float own[GROUP] = {};
        const int64_t row = t + 2 * p + r;
        const float* a = row < o.rows ? group_of(o.a + row * o.a_stride, k, K, own) : own;
        const Scale scale = scale_for<D>(top_of(a));
        int32x4_t v[8];
        cut_group(a, scale.up, v);
        digits_of(v, digit[r][0]), digits_of(v + 4, digit[r][1]);
        scales[2 * r] = scales[2 * r + 1] = scale.down;
      }
      typename Rows4<D>::Group& group = rows.group[g];
      UNROLL for (int d = 0; d < D; d++) UNROLL for (int odd = 0; odd < 2; odd++) {
        group.digits[d][2 * odd][p] = low_halves(digit[0][odd][d], digit[1][odd][d]);
        group.digits[d][2 * odd + 1][p] = high_halves(digit[0][odd][d], digit[1][odd][d]);
      }
      group.scale[p] = vld1q_f32(scales);
    }
}

inline int8x16_t low(uint8x16_t v) { return vsubq_s8(vreinterpretq_s8_u8(vandq_u8(v, vdupq_n_u8(15))), vdupq_n_s8(8)); }
inline int8x16_t high(uint8x16_t v) { return vsubq_s8(vreinterpretq_s8_u8(vshrq_n_u8(v, 4)), vdupq_n_s8(8)); }

inline float half(uint16_t bits) {
  __fp16 h;
  __builtin_memcpy(&h, &bits, 2);
  return h;
}

// 32 columns of W, the group at k of them.
void unpack(const Rows& w, int64_t k, Panel& panel) {
  for (int64_t n = 0; n < BLOCK; n += COLUMNS) UNROLL for (int q = 0; q < COLUMN_PAIRS; q++) {
      const int64_t c = n + first_column(q);
      const uint8_t* x = w.codes + c * w.codes_stride + k / 2;
      const uint8x16_t u = vld1q_u8(x), v = vld1q_u8(x + 2 * w.codes_stride);
      Panel::Group& group = panel.group[n / COLUMNS][k / GROUP];
      group.codes[0][q] = low_halves(low(u), low(v)), group.codes[1][q] = high_halves(low(u), low(v));
      group.codes[2][q] = low_halves(high(u), high(v)), group.codes[3][q] = high_halves(high(u), high(v));
      const uint16_t* h = w.scales + c * w.scales_stride + k / GROUP;
      const float a = half(h[0]), b = half(h[2 * w.scales_stride]);
      group.scale[q] = float32x4_t{a, b, a, b};
    }
}

// Columns [0, n) of c, n at most COLUMNS, (+)= 2 R rows from row t on times the columns of a panel.
template <int R, int D>
void tile(const Rows4<D>& rows, const Panel::Group* columns, int64_t groups, const Operands& o, int64_t t, float* c, int64_t n) {
  float32x4_t sum[R][COLUMN_PAIRS];
  UNROLL for (int r = 0; r < R; r++) UNROLL for (int q = 0; q < COLUMN_PAIRS; q++) sum[r][q] = vdupq_n_f32(0);
  for (int64_t g = 0; g < groups; g++) {
    const typename Rows4<D>::Group& a = rows.group[g];
    const Panel::Group& b = columns[g];
    int32x4_t s[R][COLUMN_PAIRS];
    UNROLL for (int d = 0; d < D; d++) {
      UNROLL for (int r = 0; r < R; r++) UNROLL for (int q = 0; q < COLUMN_PAIRS; q++) s[r][q] =
          d ? vshlq_n_s32(s[r][q], 8) : vdupq_n_s32(0);
      UNROLL for (int k = 0; k < STEPS; k++) {
        int8x16_t y[COLUMN_PAIRS];
        UNROLL for (int q = 0; q < COLUMN_PAIRS; q++) y[q] = b.codes[k][q];
        UNROLL for (int r = 0; r < R; r++) UNROLL for (int q = 0; q < COLUMN_PAIRS; q++) s[r][q] =
            vmmlaq_s32(s[r][q], a.digits[d][k][r], y[q]);
      }
      load_later();
    }
    UNROLL for (int q = 0; q < COLUMN_PAIRS; q++) UNROLL for (int r = 0; r < R; r++) sum[r][q] =
        vfmaq_f32(sum[r][q], vcvtq_f32_s32(s[r][q]), vmulq_f32(a.scale[r], b.scale[q]));
  }
  UNROLL for (int r = 0; r < R; r++) UNROLL for (int i = 0; i < 2; i++) {
    const int64_t row = t + 2 * r + i;
    if (row >= o.rows) return;
    float* y = c + row * o.c_stride;
    float own[COLUMNS];
    float* to = n >= COLUMNS ? y : own;
    if (to == own)
      for (int64_t j = 0; j < n; j++) own[j] = y[j];
    UNROLL for (int h = 0; h < 2; h++) {
      const float32x4_t a = sum[r][2 * h], b = sum[r][2 * h + 1], v = i ? vzip2q_f32(a, b) : vzip1q_f32(a, b);
      const bool add = !o.first || o.keep;
      const float keep = o.first && o.keep ? o.keep[row] : 1.0f;
      vst1q_f32(to + 4 * h, add ? vfmaq_n_f32(v, vld1q_f32(to + 4 * h), keep) : v);
    }
    if (to == own)
      for (int64_t j = 0; j < n; j++) y[j] = own[j];
  }
}

// Columns [n0, n1) of x W^T
template <int D>
void forward(const Weight& w, int64_t n0, int64_t n1, const Operands& x, const char* prepared, char* memory) {
  const Rows4<D>* rows = reinterpret_cast<const Rows4<D>*>(prepared);
  Panel& panel = *reinterpret_cast<Panel*>(memory);
  const int64_t groups = (w.columns + GROUP - 1) / GROUP;
  Gathered last;
  for (int64_t n = n0; n < n1; n += BLOCK) {
    const Rows from = n + BLOCK <= w.out ? rows_of(w, n, 0) : gather(w, n, 0, groups * GROUP, last);
    for (int64_t g = 0; g < groups; g++) unpack(from, g * GROUP, panel);
    for (int64_t t = 0; t < x.rows; t += ROWS)
      for (int64_t s = 0; s < BLOCK && n + s < n1; s += COLUMNS)
        (x.rows - t > 2 ? tile<2, D> : tile<1, D>)(rows[t / ROWS], panel.group[s / COLUMNS], groups, x, t, x.c + n + s, n1 - n - s);
  }
}

template <int D>
constexpr PreparedLoops loops = {ROWS, sizeof(Rows4<D>) / ROWS, sizeof(Panel), 2, prepare<D>, forward<D>, nullptr};

}  // namespace

void neon_i8mm_product(const Product& product) {
  if (product.direction == Direction::Forward)
    prepared_product(loops<DIGITS>, product);
  else
    neon_table.product(product);
}

void neon_i8mm_rounded(const Product& product) { prepared_product(loops<ROUNDED_DIGITS>, product); }

}  // namespace bespoke::kernels
