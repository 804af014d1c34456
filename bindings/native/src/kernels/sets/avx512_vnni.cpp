// SPDX-License-Identifier: Apache-2.0
// x86-64 with AVX-512 and its products of bytes (VNNI): few rows in whole numbers. For many rows they do not pay: with three digits and
// the scales, 32 summands of 16 columns take 30 instructions, and 32 as floats.
#include "kernels/drivers.h"
#include "kernels/loops/columns_avx512.h"
#include "kernels/loops/columns_x86.h"

namespace bespoke::kernels {
namespace {

using Few = ColumnsX86<ColumnsAvx512>;
constexpr VectorLoops few = {sizeof(Few::Row) / Few::N, Few::N, Few::cut, Few::columns};

}  // namespace

bool avx512_vnni_vector(const Product& product) { return vector_product(few, product); }

}  // namespace bespoke::kernels
