// SPDX-License-Identifier: Apache-2.0
// arm64: tiles of 5 x 16, 20 of the 32 registers. Four summands of each row are in a register, and multiply by element (FMLA by lane):
// no summand is copied to all elements first, which would take a place in the pipelines that multiply.
#include "kernels/sets/neon.h"

#include "kernels/drivers.h"
#include "kernels/loops/whole_table.h"

namespace bespoke::kernels {
namespace {

struct Tiles : Vectors {
  static constexpr int MR = 5, STEP = 4, NV = NR / VL;

  // A vector of the next summand is loaded as soon as this one's is used up: cores that keep the order of instructions (Cortex-A55, A510)
  // would otherwise wait for it.
  template <int u, int R>
  static void add_summand(const vec (&f)[R], const float* b, vec (&x)[NV], vec (&sum)[R][NV]) {
    UNROLL for (int v = 0; v < NV; v++) {
      UNROLL for (int r = 0; r < R; r++) sum[r][v] = vfmaq_laneq_f32(sum[r][v], x[v], f[r], u);
      if (u + 1 < STEP) x[v] = load(b + (u + 1) * NR + v * VL);
    }
  }

  template <int R, size_t P>
  static void multiply_add(const float* const (&p)[P], int64_t a_stride, const float* b, vec (&sum)[R][NV]) {
    vec f[R], x[NV];
    UNROLL for (int r = 0; r < R; r++) f[r] = load(p[r / ROWS_PER_POINTER] + r % ROWS_PER_POINTER * a_stride);
    UNROLL for (int v = 0; v < NV; v++) x[v] = load(b + v * VL);
    add_summand<0, R>(f, b, x, sum);
    add_summand<1, R>(f, b, x, sum);
    add_summand<2, R>(f, b, x, sum);
    add_summand<3, R>(f, b, x, sum);
  }
};

#include "kernels/loops/noise.h"

using Loops = Direct<Tiles, DecodeBytes<Vectors>>;
constexpr DirectLoops direct = {Tiles::MR, Loops::forward, Loops::transposed};

void product(const Product& p) { direct_product(direct, p); }

}  // namespace

extern const Table neon_table = whole_table<Loops, Vectors>(InstructionSet::Neon, product, nullptr, noise);

}  // namespace bespoke::kernels
