// SPDX-License-Identifier: Apache-2.0
// x86-64 with AVX-512 and its products of bytes (VNNI): few rows in whole numbers. For many rows they do not pay: with three digits and
// the scales, 32 summands of 16 columns take 30 instructions, and 32 as floats.
#include "kernels/drivers.h"
#include "kernels/loops/columns_avx512.h"

namespace bespoke::kernels {
namespace {

constexpr VectorLoops few = {sizeof(Groups<4>) / 4, 4, ColumnsAvx512::cut, ColumnsAvx512::columns};

}  // namespace

bool avx512_vnni_vector(const Product& product) { return vector_product(few, product); }

}  // namespace bespoke::kernels
