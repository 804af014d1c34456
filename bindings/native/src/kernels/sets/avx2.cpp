// SPDX-License-Identifier: Apache-2.0
// x86-64 with AVX2, FMA and F16C: tiles of 6 x 16, 12 of the 16 registers.
#include <immintrin.h>

#include "kernels/drivers.h"
#include "kernels/loops/columns_avx2.h"
#include "kernels/loops/columns_x86.h"
#include "kernels/loops/decode_bytes.h"
#include "kernels/loops/whole_table.h"

namespace bespoke::kernels {
namespace {

struct Vectors {
  static constexpr int VL = 8, NR = 16, ROWS_PER_POINTER = 3;  // three, since an address is a register, and another one times 1 or 2
  typedef __m256 vec;
  static vec load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, vec v) { _mm256_storeu_ps(p, v); }
  static vec all(float f) { return _mm256_set1_ps(f); }
  static vec fused(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
  static vec larger(vec a, vec b) { return _mm256_max_ps(a, b); }  // b where a is not a number
  static vec bits_to_exponent(vec shifted) {
    const __m256i n = _mm256_castps_si256(shifted);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  }
  static vec zero_where_less(vec x, vec limit, vec v) { return _mm256_andnot_ps(_mm256_cmp_ps(x, limit, _CMP_LT_OQ), v); }
  static float half(uint16_t bits) { return _cvtsh_ss(bits); }
  static vec rows_of_four(const float* p, int64_t stride) { return _mm256_loadu2_m128(p + 4 * stride, p); }
  static void transpose_four(vec (&x)[4]) {
    const vec a = _mm256_unpacklo_ps(x[0], x[1]), b = _mm256_unpackhi_ps(x[0], x[1]);
    const vec c = _mm256_unpacklo_ps(x[2], x[3]), d = _mm256_unpackhi_ps(x[2], x[3]);
    x[0] = _mm256_shuffle_ps(a, c, 0x44), x[1] = _mm256_shuffle_ps(a, c, 0xee);
    x[2] = _mm256_shuffle_ps(b, d, 0x44), x[3] = _mm256_shuffle_ps(b, d, 0xee);
  }

  static constexpr int HALVES = 2;
  typedef uint8_t bytes __attribute__((vector_size(32)));
  typedef float floats __attribute__((vector_size(32), aligned(4), may_alias));
  static bytes zip8_low(bytes a, bytes b) { return (bytes)_mm256_unpacklo_epi8((__m256i)a, (__m256i)b); }
  static bytes zip8_high(bytes a, bytes b) { return (bytes)_mm256_unpackhi_epi8((__m256i)a, (__m256i)b); }
  static bytes zip16_low(bytes a, bytes b) { return (bytes)_mm256_unpacklo_epi16((__m256i)a, (__m256i)b); }
  static bytes zip16_high(bytes a, bytes b) { return (bytes)_mm256_unpackhi_epi16((__m256i)a, (__m256i)b); }
  static bytes load_bytes(const uint8_t* p, int64_t next) {
    return (bytes)_mm256_loadu2_m128i((const __m128i*)(p + next), (const __m128i*)p);
  }
  // Of 16 bytes given twice, those of columns 0-3, 8-11, ... first: the order in which `put` takes them.
  static bytes runs_of_four(bytes v) {
    const __m256i order =
        _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 0, 0, 0, 0, 0, 0, 0, 0, 2, 3, 6, 7, 10, 11, 14, 15, 0, 0, 0, 0, 0, 0, 0, 0);
    return (bytes)_mm256_shuffle_epi8((__m256i)v, order);
  }
};

struct Tiles : Vectors, ByBroadcast<Vectors, 4> {
  static constexpr int MR = 6, STEP = 4;
};

using Loops = Direct<Tiles, DecodeBytes<Vectors>>;

#include "kernels/loops/noise.h"

using Few = ColumnsX86<ColumnsAvx2>;
constexpr DirectLoops direct = {Tiles::MR, Loops::forward, Loops::transposed};
constexpr VectorLoops few = {sizeof(Few::Row) / Few::N, Few::N, Few::cut, Few::columns};

void product(const Product& p) { direct_product(direct, p); }
bool vector(const Product& p) { return vector_product(few, p); }

}  // namespace

extern const Table avx2_table = whole_table<Loops, Vectors>(InstructionSet::Avx2, product, vector, noise);

}  // namespace bespoke::kernels
