// SPDX-License-Identifier: Apache-2.0
// x86-64 with AMX: fp32 products on tiles of bf16. A float is the sum of three bf16 numbers, a decoded weight (15 significant bits)
// that of two, both exactly; five of the six products of such parts are taken. The sixth is less than what one addition in fp32
// rounds away. Sums are fp32, in the order of the tiles: their last bits are not those of fused multiply-adds.
#include "kernels/sets/avx512.h"

#include "kernels/drivers.h"

namespace bespoke::kernels {
namespace {

using vec = Vectors::vec;
constexpr int64_t SIDE = 16;  // rows of a tile, and columns of a result's
constexpr int64_t STEP = 32;  // summands of a tile: 64 bytes of bf16
constexpr int64_t TILE = SIDE * STEP;
constexpr int PARTS = 3, WEIGHT_PARTS = 2;
static_assert(DEPTH % STEP == 0 && BLOCK == 2 * SIDE, "panels are pairs of tiles");

struct alignas(64) TileConfig {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

constexpr TileConfig config;

inline vec upper_half(vec x) {
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}

// The upper halves of 16 + 16 floats in order.
inline __m512i upper_halves(vec a, vec b) {
  alignas(64) static constexpr uint16_t odd[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                                   33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  return _mm512_permutex2var_epi16(_mm512_castps_si512(a), _mm512_load_si512(odd), _mm512_castps_si512(b));
}

// The upper halves of a in the lower halves of the result, those of b in the upper ones: what a tile of the right operand wants of
// two summands.
inline __m512i interleaved(vec a, vec b) {
  const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(a), 16);
  return _mm512_mask_blend_epi16(0xaaaaaaaa, low, _mm512_castps_si512(b));
}

// 16 rows of K summands from row t on, in parts, as tiles [step][part]; rows and summands up to a whole tile are zero.
void prepare(const Operands& o, int64_t t, int64_t K, char* tiles) {
  uint16_t* to = reinterpret_cast<uint16_t*>(tiles);
  for (int64_t k = 0; k < K; k += STEP, to += PARTS * TILE)
    for (int64_t r = 0; r < SIDE; r++) {
      const int64_t left = t + r < o.rows ? K - k : 0;
      const float* p = o.a + (left ? (t + r) * o.a_stride + k : 0);
      vec x = _mm512_maskz_loadu_ps(first_lanes(left), p), y = _mm512_maskz_loadu_ps(first_lanes(left - SIDE), p + SIDE);
      for (int part = 0; part < PARTS; part++) {
        _mm512_store_si512(to + part * TILE + r * STEP, upper_halves(x, y));
        x = x - upper_half(x), y = y - upper_half(y);
      }
    }
}

// 32 summands of 32 columns, in two parts: tiles [part][half of the columns].
void split_weights(const float* decoded, uint16_t* panel) {
  for (int64_t half = 0; half < 2; half++)
    for (int64_t k = 0; k < STEP; k += 2) {
      const vec a = Vectors::load(decoded + k * BLOCK + half * SIDE), b = Vectors::load(decoded + (k + 1) * BLOCK + half * SIDE);
      uint16_t* to = panel + half * TILE + k * SIDE;
      _mm512_store_si512(to, interleaved(a, b));
      _mm512_store_si512(to + 2 * TILE, interleaved(a - upper_half(a), b - upper_half(b)));
    }
}

// Tiles 0 to 3 are sums: of the upper rows and the left columns, upper right, lower left, lower right. 4 and 5 hold weights.
#define ONE_PART(offset)                  \
  _tile_loadd(6, upper + (offset), 64);   \
  _tile_dpbf16ps(0, 6, 4);                \
  _tile_dpbf16ps(1, 6, 5);                \
  if (both) {                             \
    _tile_loadd(7, lower + (offset), 64); \
    _tile_dpbf16ps(2, 7, 4);              \
    _tile_dpbf16ps(3, 7, 5);              \
  }

// sums [32][32] = 32 rows in parts times a panel; of 16 rows where not both.
template <bool both>
void multiply_tiles(const uint16_t* upper, const uint16_t* lower, const uint16_t* panel, int64_t steps, float* sums) {
  __asm__ volatile("" ::: "memory");  // GCC does not know that the tiles below read memory
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t s = 0; s < steps; s++) {
    _tile_loadd(4, panel, 64);
    _tile_loadd(5, panel + TILE, 64);
    ONE_PART(0)
    ONE_PART(TILE)
    ONE_PART(2 * TILE)
    _tile_loadd(4, panel + 2 * TILE, 64);
    _tile_loadd(5, panel + 3 * TILE, 64);
    ONE_PART(0)
    ONE_PART(TILE)
    upper += PARTS * TILE, lower += PARTS * TILE, panel += 2 * WEIGHT_PARTS * TILE;
  }
  _tile_stored(0, sums, 4 * BLOCK);
  _tile_stored(1, sums + SIDE, 4 * BLOCK);
  if (both) {
    _tile_stored(2, sums + SIDE * BLOCK, 4 * BLOCK);
    _tile_stored(3, sums + SIDE * BLOCK + SIDE, 4 * BLOCK);
  }
  __asm__ volatile("" ::: "memory");
}

// Columns [0, n) of c (+)= the rows in parts times the panel.
void multiply(const Operands& o, const uint16_t* parts, const uint16_t* panel, int64_t K, float* c, int64_t n) {
  const int64_t steps = (K + STEP - 1) / STEP;
  const __mmask16 left = first_lanes(n), right = first_lanes(n - SIDE);
  alignas(64) float sums[2 * SIDE * BLOCK];
  for (int64_t t = 0; t < o.rows; t += 2 * SIDE) {
    const int64_t rows = smaller(2 * SIDE, o.rows - t);
    for (int64_t r = 0; r < rows; r++) {
      const float* y = c + (t + r) * o.c_stride;
      __builtin_prefetch(y, 1), __builtin_prefetch(y + BLOCK - 1, 1);
    }
    const uint16_t* upper = parts + t * DEPTH * PARTS;
    (rows > SIDE ? multiply_tiles<true> : multiply_tiles<false>)(upper, upper + SIDE * DEPTH * PARTS, panel, steps, sums);
    for (int64_t r = 0; r < rows; r++) {
      float* y = c + (t + r) * o.c_stride;
      vec x = Vectors::load(sums + r * BLOCK), z = Vectors::load(sums + r * BLOCK + SIDE);
      if (!o.first || o.keep) {
        const vec keep = Vectors::all(o.first ? o.keep[t + r] : 1.0f);
        x = Vectors::fused(_mm512_maskz_loadu_ps(left, y), keep, x), z = Vectors::fused(_mm512_maskz_loadu_ps(right, y + SIDE), keep, z);
      }
      _mm512_mask_storeu_ps(y, left, x), _mm512_mask_storeu_ps(y + SIDE, right, z);
    }
  }
}

void forward(const Weight& w, int64_t n0, int64_t n1, const Operands& x, const char* rows, char* panel) {
  _tile_loadconfig(&config);
  uint16_t* tiles = reinterpret_cast<uint16_t*>(panel);
  const uint16_t* parts = reinterpret_cast<const uint16_t*>(rows);
  alignas(64) float decoded[STEP * BLOCK];
  Gathered last;
  const int64_t K = (w.columns + STEP - 1) / STEP * STEP;
  for (int64_t n = n0; n < n1; n += BLOCK) {
    const Rows from = n + BLOCK <= w.out ? rows_of(w, n, 0) : gather(w, n, 0, K, last);
    for (int64_t k = 0; k < K; k += STEP) {
      Decode::decode_transposed(from, k, decoded, SIDE);
      split_weights(decoded, tiles + k * BLOCK * WEIGHT_PARTS);
    }
    multiply(x, parts, tiles, w.columns, x.c + n, smaller(BLOCK, n1 - n));
  }
  _tile_release();
}

void transposed(const Weight& w, int64_t n0, int64_t n1, const Operands& g, const char* rows, char* panel) {
  _tile_loadconfig(&config);
  uint16_t* tiles = reinterpret_cast<uint16_t*>(panel);
  const uint16_t* parts = reinterpret_cast<const uint16_t*>(rows);
  alignas(64) float decoded[STEP * BLOCK];
  for (int64_t n = n0; n < n1; n += BLOCK) {
    for (int64_t k = 0; k < w.out; k += STEP) {
      const int64_t some = smaller(STEP, w.out - k);
      Decode::decode_rows(w, k, some, n, decoded, SIDE);
      __builtin_memset(decoded + some * BLOCK, 0, static_cast<size_t>(STEP - some) * BLOCK * 4);
      split_weights(decoded, tiles + k * BLOCK * WEIGHT_PARTS);
    }
    multiply(g, parts, tiles, w.out, g.c + n, smaller(BLOCK, n1 - n));
  }
  _tile_release();
}

// One buffer of rows: with two, they would be so few that decoding takes a quarter of the time.
constexpr PreparedLoops loops = {SIDE, DEPTH * PARTS * 2, DEPTH * BLOCK * WEIGHT_PARTS * 2, 1, prepare, forward, transposed};

}  // namespace

void amx_product(const Product& product) { prepared_product(loops, product); }

}  // namespace bespoke::kernels
