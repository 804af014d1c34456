// SPDX-License-Identifier: Apache-2.0
// Which counters an element of a tensor comes from; what is made of them is kernels/noise.h, in the processor's instruction set.
#include "exec/noise.h"

#include <string>

#include "error.h"
#include "kernels/table.h"

namespace bespoke {

namespace {

#include "kernels/philox.h"

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
           Distribution distribution, int64_t first) {
  check_range("query", query, 31);
  check_range("block", block, 16);
  check_range("tensor", tensor, 16);
  check_range("last index", static_cast<uint64_t>(count > 0 ? first + count - 1 : 0), 34);
  const Words counter = {static_cast<uint32_t>(first / 4), block << 16 | tensor, query, step};
  static const kernels::Table& table = kernels::best_table();
  table.noise(out, count, counter.data(), seed, distribution == Distribution::rademacher);
}

}  // namespace bespoke
