// SPDX-License-Identifier: Apache-2.0
// Which counters an element of a tensor comes from; what is made of them is kernels/loops/noise.h, in the processor's instruction set.
#include "exec/noise.h"

#include <algorithm>
#include <string>

#include "error.h"
#include "kernels/table.h"

namespace bespoke {

namespace {

#include "kernels/loops/philox.h"

constexpr int64_t kPiece = 4096;  // elements that one thread makes at once, in some 10 microseconds

void check_range(const char* name, uint64_t value, int bits) {
  if (value >> bits)
    throw Error(Kind::Plan, std::string("noise: ") + name, std::to_string(value),
                "a whole number from 0 to 2^" + std::to_string(bits) + " - 1", "The counter has no room for it; use a smaller one");
}

}  // namespace

Words philox(const Words& counter, uint64_t seed) {
  Piece<1> piece;
  draw(piece, counter.data(), seed);
  return {piece.words[0][0], piece.words[1][0], piece.words[2][0], piece.words[3][0]};
}

void noise(float* out, int64_t count, uint64_t seed, uint32_t step, uint32_t query, uint32_t block, uint32_t tensor,
           Distribution distribution, int64_t first, const kernels::Parallel& parallel) {
  check_range("query", query, 31);
  check_range("block", block, 16);
  check_range("tensor", tensor, 16);
  check_range("last index", static_cast<uint64_t>(count > 0 ? first + count - 1 : 0), 34);
  static const kernels::Table& table = kernels::best_table();
  auto piece = [&](size_t index) {
    const int64_t from = static_cast<int64_t>(index) * kPiece;
    const Words counter = {static_cast<uint32_t>((first + from) / 4), block << 16 | tensor, query, step};
    table.noise(out + from, std::min(kPiece, count - from), counter.data(), seed, distribution == Distribution::rademacher);
  };
  const auto pieces = static_cast<size_t>((count + kPiece - 1) / kPiece);
  if (pieces <= 1) return piece(0);
  using Piece = decltype(piece);
  parallel.run(parallel.pool, pieces, [](void* shared, size_t index) { (*static_cast<Piece*>(shared))(index); }, &piece);
}

}  // namespace bespoke
