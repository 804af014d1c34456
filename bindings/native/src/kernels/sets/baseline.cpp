// SPDX-License-Identifier: Apache-2.0
// Any processor, in the compiler's own vectors of four floats: SSE2 on x86-64. Multiplication and addition round one after the
// other here: without the instruction, a fused one takes a hundred times longer. So the last bits differ from the other sets.
#include "kernels/drivers.h"
#include "kernels/loops/decode_scalar.h"
#include "kernels/loops/whole_table.h"

namespace bespoke::kernels {
namespace {

struct Vectors {
  static constexpr int VL = 4, NR = 16, ROWS_PER_POINTER = 3;
  typedef float vec __attribute__((vector_size(16)));
  typedef float loose __attribute__((vector_size(16), aligned(4), may_alias));
  typedef int32_t integers __attribute__((vector_size(16)));
  static vec load(const float* p) { return *(const loose*)p; }
  static void store(float* p, vec v) { *(loose*)p = v; }
  static vec all(float f) { return vec{f, f, f, f}; }
  static vec fused(vec a, vec b, vec c) { return a * b + c; }
  static vec choose(integers which, vec a, vec b) { return (vec)(((integers)a & which) | ((integers)b & ~which)); }
  static vec larger(vec a, vec b) { return choose(a > b, a, b); }
  static vec bits_to_exponent(vec shifted) { return (vec)(((integers)shifted + 127) << 23); }
  static vec zero_where_less(vec x, vec limit, vec v) { return choose(x < limit, all(0.0f), v); }
  static vec rows_of_four(const float* p, int64_t) { return load(p); }
  static void transpose_four(vec (&x)[4]) {
    const vec a = x[0], b = x[1], c = x[2], d = x[3];
    UNROLL for (int i = 0; i < 4; i++) x[i] = vec{a[i], b[i], c[i], d[i]};
  }
  static float half(uint16_t bits) {
    const uint32_t sign = uint32_t(bits & 0x8000) << 16, rest = uint32_t(bits & 0x7fff) << 13;  // its exponent is 112 short
    const uint32_t u = rest >= 0x0f800000 ? sign | (rest + 0x70000000) : sign | rest;           // infinite, not a number
    float f;
    __builtin_memcpy(&f, &u, 4);
    return rest >= 0x0f800000 ? f : f * 0x1p112f;
  }
};

struct Tiles : Vectors, ByBroadcast<Vectors, 4> {
  static constexpr int MR = 3, STEP = 4;
};

#include "kernels/loops/noise.h"

using Loops = Direct<Tiles, DecodeScalar<Vectors>>;
constexpr DirectLoops direct = {Tiles::MR, Loops::forward, Loops::transposed};

void product(const Product& p) { direct_product(direct, p); }

}  // namespace

extern const Table baseline_table = whole_table<Loops, Vectors>(InstructionSet::Baseline, product, nullptr, noise);

}  // namespace bespoke::kernels
