// SPDX-License-Identifier: Apache-2.0
// What is compiled once for each instruction set, in sets/ from the loops in loops/. Files there are kept free of inline functions and
// templates that other files share: the linker keeps one copy of such a function, and that may be the one that other processors cannot
// run. So their functions are static, or templates over a type of an unnamed namespace.
#pragma once

#include "kernels/int4.h"

namespace bespoke::kernels {

constexpr int64_t GROUP = 32;            // summands that share a scale
constexpr int64_t BLOCK = 32;            // columns decoded together
constexpr int64_t DEPTH = 256;           // summands decoded together, a multiple of GROUP. The order of sums depends on it alone
constexpr int64_t LANES = 16;            // of a row's sum of exponentials, in every instruction set
constexpr float LEAST = -3e38f;          // stands for a logit or a score that does not exist: its exponential is exactly 0
constexpr int64_t HEAD_ROWS = 256;       // rows of h whose logits are held at once
constexpr int64_t HEAD_COLUMNS = DEPTH;  // vocabulary rows of a sub-tile: one panel deep
constexpr int64_t LOGITS_STRIDE = HEAD_COLUMNS + 16;  // so that rows of logits do not compete for the same cache lines

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

enum class Direction { Forward, Transposed };  // x W^T, g W

// c [rows, n] = (or +=, or = c * keep +) a W'. Row strides count floats.
struct Operands {
  const float* a;
  int64_t a_stride, rows;
  float* c;
  int64_t c_stride;
  const float* keep;  // of each row; null: c is overwritten by the first summands
  bool first = true;  // whether these are the first summands. A loop that takes all of them does not look at it
};

// Columns [n0, n1) of o.c += the share of an adapter, whose h begins with row t. `panel`: LORA_PANEL_BYTES.
using AddLora = void (*)(const Lora& lora, int64_t t, int64_t n0, int64_t n1, const Operands& o, float* panel);
constexpr int64_t LORA_PANEL_BYTES = LORA_RANK * BLOCK * 4;

// All columns of a product. `scratch`: SCRATCH_BYTES, aligned to 64.
struct Product {
  Direction direction;
  const Weight& w;
  Operands operands;
  char* scratch;
  const Parallel& parallel;
  const Lora* lora = nullptr;
  AddLora add_lora = nullptr;
  const Product* also = nullptr;  // another one of the same rows, for `vector` alone
};

// A row's logits become exp(z - m) and enter the sum. [begin, end) of the rows of z, `count` columns each.
struct Softmax {
  float* z;       // [rows, LOGITS_STRIDE]
  int64_t count;  // vocabulary rows of this sub-tile
  int64_t first;  // and the number of the first one
  const int64_t* targets;
  HeadState from, to;  // of these rows; acc is not touched
  float* keep;         // out: exp(m - m')
};

// What some queries have seen: relative to m, their largest score, the sum l of exponentials and that of values times these.
struct AttentionSums {
  float *m, *l;
  float* sum;
};

// Queries of one key-value head over a span of at most DEPTH keys.
struct AttentionSpan {
  const float* q;  // [queries, width]: of each position its `heads` queries, in order
  int64_t queries, heads, width;
  const float *k, *v;        // of the first key
  int64_t stride;            // floats between keys
  int64_t keys, readable;    // that any query sees; that may be read
  int64_t position, window;  // of the first query, from the first key on. A query sees (its position - window, its position]
  float scale;
  float *panel, *scores;  // scratch: PANEL_BYTES, and [queries, LOGITS_STRIDE]
  AttentionSums to;       // sums [queries, sum_stride]
  int64_t sum_stride;
};

struct Table {
  InstructionSet set;
  void (*product)(const Product& product);
  // x W^T of at most VECTOR_ROWS rows, and those behind `also`; false: there is too little scratch for rows of this length. Null: `product`
  // is as fast.
  bool (*vector)(const Product& product);
  void (*rounded)(const Product& product);  // x W^T with Precision::Rounded. Null: `product` is as fast
  AddLora add_lora;
  void (*row)(const Weight& w, int64_t row, float* y);
  void (*softmax)(const Softmax& s, int64_t begin, int64_t end);
  void (*elementwise)(const ElementwiseStep* steps, int64_t number, float* const* registers, int64_t count);
  void (*strided)(const StridedLoop& loop);
  void (*attention)(const AttentionSpan& span);
  void (*merge)(const AttentionSums& to, const AttentionSums& from, int64_t queries, int64_t sum_stride);  // to += from
  void (*noise)(float* out, int64_t count, const uint32_t* counter, uint64_t seed, bool rademacher);       // the same bits in each
};

extern const Table baseline_table;
#if defined(__x86_64__)
extern const Table avx2_table, avx512_table;
void amx_product(const Product& product);
bool avx512_vnni_vector(const Product& product);
void avx512_vnni_rounded(const Product& product);
#elif defined(__aarch64__)
extern const Table neon_table;
bool neon_dot_vector(const Product& product);
void neon_i8mm_product(const Product& product);
void neon_i8mm_rounded(const Product& product);
#endif

}  // namespace bespoke::kernels
