// SPDX-License-Identifier: Apache-2.0
// x86-64 with AVX-512 (F, BW, DQ, VL): tiles of 12 x 32, 24 of the 32 registers.
#include "kernels/sets/avx512.h"

#include "kernels/drivers.h"
#include "kernels/loops/whole_table.h"

namespace bespoke::kernels {
namespace {

struct Tiles : Vectors, ByBroadcast<Vectors, 4> {
  static constexpr int MR = 12, STEP = 4;
};

#include "kernels/loops/noise.h"

using Loops = Direct<Tiles, Decode>;
constexpr DirectLoops direct = {Tiles::MR, Loops::forward, Loops::transposed};

void product(const Product& p) { direct_product(direct, p); }

}  // namespace

extern const Table avx512_table = whole_table<Loops, Vectors>(InstructionSet::Avx512, product, nullptr, noise);

}  // namespace bespoke::kernels
