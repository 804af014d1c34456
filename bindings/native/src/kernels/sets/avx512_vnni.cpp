// SPDX-License-Identifier: Apache-2.0
// x86-64 with AVX-512 and its products of bytes (VNNI): few rows in whole numbers. For many rows they do not pay: with three digits and
// the scales, 32 summands of 16 columns take 30 instructions, and 32 as floats.
#include "kernels/drivers.h"
#include "kernels/loops/columns_x86.h"

namespace bespoke::kernels {
namespace {

struct Sums {
  static __m256i sums(const __m256i (&codes)[4], const TwoGroups& two) {
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256i s[4];
    UNROLL for (int c = 0; c < 4; c++) {
      const __m256i even = _mm256_and_si256(codes[c], nibble), odd = _mm256_and_si256(_mm256_srli_epi16(codes[c], 4), nibble);
      s[c] = _mm256_setzero_si256();
      UNROLL for (int d = 0; d < DIGITS; d++) {
        if (d) s[c] = _mm256_slli_epi32(s[c], 8);
        s[c] = _mm256_dpbusd_epi32(s[c], even, _mm256_load_si256((const __m256i*)two.digits[d][0]));
        s[c] = _mm256_dpbusd_epi32(s[c], odd, _mm256_load_si256((const __m256i*)two.digits[d][1]));
      }
    }
    return _mm256_hadd_epi32(_mm256_hadd_epi32(s[0], s[1]), _mm256_hadd_epi32(s[2], s[3]));
  }
};

using Few = ColumnsX86<Sums>;
constexpr VectorLoops few = {sizeof(TwoGroups) / 2, 2, Few::cut, Few::columns};

}  // namespace

bool avx512_vnni_vector(const Product& product) { return vector_product(few, product); }

}  // namespace bespoke::kernels
