// SPDX-License-Identifier: Apache-2.0
// x86-64 with AVX-512 and its products of whole numbers (VNNI): a few rows as three bytes a number. For many rows that does not pay: with
// the scales, 32 summands of 16 columns take 30 instructions, and 32 as floats. Rounded to 16 bits they take 19.
#include "kernels/drivers.h"
#include "kernels/loops/columns_avx512.h"
#include "kernels/loops/columns_x86.h"
#include "kernels/loops/words_avx512.h"

namespace bespoke::kernels {
namespace {

using Few = ColumnsX86<ColumnsAvx512>;
constexpr VectorLoops few = {sizeof(Few::Row) / Few::N, Few::N, Few::cut, Few::columns};

using Words = WordsAvx512;
constexpr PreparedLoops words = {Words::ROWS, sizeof(Words::Numbers) / Words::ROWS, sizeof(Words::Panel), 2, Words::prepare, Words::forward,
                                 nullptr};

}  // namespace

bool avx512_vnni_vector(const Product& product) { return vector_product(few, product); }

void avx512_vnni_rounded(const Product& product) { prepared_product(words, product); }

}  // namespace bespoke::kernels
