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

  template <int R, size_t P>
  static void multiply_add(const float* const (&rows)[P], int64_t a_stride, const float* b, int64_t K, vec (&sum)[R][NV]) {
    int64_t k = 0;
    if constexpr (R == MR)
      if (K > STEP) multiply_but_last_step(rows[0], a_stride, b, k = K - STEP, sum);
    for (; k < K; k += STEP) add_step<R>(rows, a_stride, k, b + k * NR, sum);
  }

 private:
  template <int R, size_t P>
  static void add_step(const float* const (&rows)[P], int64_t a_stride, int64_t k, const float* b, vec (&sum)[R][NV]) {
    vec f[R];
    UNROLL for (int r = 0; r < R; r++) f[r] = load(rows[r / ROWS_PER_POINTER] + r % ROWS_PER_POINTER * a_stride + k);
    add_summand<0, R>(f, b, sum);
    add_summand<1, R>(f, b, sum);
    add_summand<2, R>(f, b, sum);
    add_summand<3, R>(f, b, sum);
  }

  template <int u, int R>
  static void add_summand(const vec (&f)[R], const float* b, vec (&sum)[R][NV]) {
    UNROLL for (int v = 0; v < NV; v++) {
      const vec x = load(b + u * NR + v * VL);
      UNROLL for (int r = 0; r < R; r++) sum[r][v] = vfmaq_laneq_f32(sum[r][v], x, f[r], u);
    }
  }

  // Sums of the first K summands, of which STEP more follow. Registers v10 to v13 hold a row of the strip, and v20 to v24 four summands
  // of each row. Each is loaded again as soon as it is used up, the last ones for the next four summands. Cores that keep the order of
  // instructions (Cortex-A55, A510) would otherwise wait, and compilers move all loads to the start of the loop, where they do. They
  // also join two loads to an LDP, which takes those cores longer. LDUR because LDR with an offset counts as two operations on an A76.
#define ADD(r, v, u) "fmla %[s" #r #v "].4s, v1" #v ".4s, v2" #r ".s[" #u "]\n"
#define ADD_COLUMNS(v, u) ADD(0, v, u) ADD(1, v, u) ADD(2, v, u) ADD(3, v, u) ADD(4, v, u)
#define LOAD_COLUMNS(v, at) "ldur q1" #v ", [%[b], #" #at "]\n"
#define LOAD_ROW(r, at) "ldr q2" #r ", [%[a]" at "]\n"
#define ZERO(r) "movi %[s" #r "0].2d, #0\nmovi %[s" #r "1].2d, #0\nmovi %[s" #r "2].2d, #0\nmovi %[s" #r "3].2d, #0\n"
#define SUMS(r) [s##r##0] "=&w"(sum[r][0]), [s##r##1] "=&w"(sum[r][1]), [s##r##2] "=&w"(sum[r][2]), [s##r##3] "=&w"(sum[r][3])
  static void multiply_but_last_step(const float* a, int64_t a_stride, const float* b, int64_t K, vec (&sum)[MR][NV]) {
    static_assert(MR == 5 && STEP == 4 && NR == 16, "The registers below are those of a tile of 5 x 16.");
    const int64_t bytes = a_stride * static_cast<int64_t>(sizeof(float));
    __asm__(
        ZERO(0) ZERO(1) ZERO(2) ZERO(3) ZERO(4)
        LOAD_ROW(0, "") LOAD_ROW(1, ", %[row1]") LOAD_ROW(2, ", %[row2]") LOAD_ROW(3, ", %[row3]") LOAD_ROW(4, ", %[row4]")
        LOAD_COLUMNS(0, 0) LOAD_COLUMNS(1, 16) LOAD_COLUMNS(2, 32) LOAD_COLUMNS(3, 48)
        "1:\n"
        ADD_COLUMNS(0, 0) LOAD_COLUMNS(0, 64) ADD_COLUMNS(1, 0) LOAD_COLUMNS(1, 80)
        ADD_COLUMNS(2, 0) LOAD_COLUMNS(2, 96) ADD_COLUMNS(3, 0) LOAD_COLUMNS(3, 112)
        ADD_COLUMNS(0, 1) LOAD_COLUMNS(0, 128) ADD_COLUMNS(1, 1) LOAD_COLUMNS(1, 144)
        ADD_COLUMNS(2, 1) LOAD_COLUMNS(2, 160) ADD_COLUMNS(3, 1) LOAD_COLUMNS(3, 176)
        ADD_COLUMNS(0, 2) LOAD_COLUMNS(0, 192) ADD_COLUMNS(1, 2) LOAD_COLUMNS(1, 208)
        ADD_COLUMNS(2, 2) LOAD_COLUMNS(2, 224) ADD_COLUMNS(3, 2) LOAD_COLUMNS(3, 240)
        "add %[b], %[b], #256\n"
        "add %[a], %[a], #16\n"
        "subs %[k], %[k], #4\n"
        ADD_COLUMNS(0, 3) LOAD_COLUMNS(0, 0) ADD_COLUMNS(1, 3) LOAD_COLUMNS(1, 16) ADD_COLUMNS(2, 3) LOAD_COLUMNS(2, 32)
        ADD(0, 3, 3) LOAD_ROW(0, "") ADD(1, 3, 3) LOAD_ROW(1, ", %[row1]") ADD(2, 3, 3) LOAD_ROW(2, ", %[row2]")
        ADD(3, 3, 3) LOAD_ROW(3, ", %[row3]") ADD(4, 3, 3) LOAD_ROW(4, ", %[row4]") LOAD_COLUMNS(3, 48)
        "b.gt 1b\n"
        : SUMS(0), SUMS(1), SUMS(2), SUMS(3), SUMS(4), [a] "+r"(a), [b] "+r"(b), [k] "+r"(K)
        : [row1] "r"(bytes), [row2] "r"(2 * bytes), [row3] "r"(3 * bytes), [row4] "r"(4 * bytes)
        : "cc", "memory", "v10", "v11", "v12", "v13", "v20", "v21", "v22", "v23", "v24");
  }
#undef ADD
#undef ADD_COLUMNS
#undef LOAD_COLUMNS
#undef LOAD_ROW
#undef ZERO
#undef SUMS
};

#include "kernels/loops/noise.h"

using Loops = Direct<Tiles, DecodeBytes<Vectors>>;
constexpr DirectLoops direct = {Tiles::MR, Loops::forward, Loops::transposed};

void product(const Product& p) { direct_product(direct, p); }

}  // namespace

extern const Table neon_table = whole_table<Loops, Vectors>(InstructionSet::Neon, product, nullptr, noise);

}  // namespace bespoke::kernels
