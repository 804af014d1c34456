// SPDX-License-Identifier: Apache-2.0
// Products of Qwen2.5-0.5B on random weights: the seven linears of its blocks, and its head.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/int4.h"

namespace bespoke {

class BenchModel {
 public:
  static constexpr int64_t kRows = 256;       // at most, in all products here
  static constexpr int64_t kHeadRows = 4096;  // of the vocabulary, in one chunk

  BenchModel(size_t blocks, int64_t vocabulary);

  // The next block, so that weights come from memory as in a model; and how many weights it has.
  void forward(const kernels::Table& table, int64_t rows, const kernels::Parallel& parallel);
  void transposed(const kernels::Table& table, int64_t rows, const kernels::Parallel& parallel);
  int64_t block_weights() const;

  // The next whole chunk of the head with its gradient.
  void head(const kernels::Table& table, int64_t rows, const kernels::Parallel& parallel);
  int64_t head_weights() const;

  // The products of a training step: each block forward, the head, then each block forward again and the gradient of its input.
  void step(const kernels::Table& table, const kernels::Parallel& parallel);

  size_t blocks() const { return blocks_; }
  int64_t vocabulary() const { return vocabulary_; }

 private:
  struct Weights {
    Weights(int64_t out, int64_t columns, uint64_t seed);
    kernels::Weight rows(int64_t begin, int64_t end) const;
    int64_t out, columns;
    std::vector<uint64_t> codes;  // 16 a word
    std::vector<uint16_t> scales;
  };
  void head_rows(const kernels::Table& table, int64_t rows, int64_t begin, int64_t end, const kernels::Parallel& parallel);

  size_t blocks_, next_ = 0;
  int64_t vocabulary_, next_head_ = 0;
  std::vector<Weights> linears_;  // of all blocks
  Weights head_;
  std::vector<float> x_, y_;
  std::vector<float> m_, l_, label_;
  std::vector<int64_t> targets_, best_;
  std::vector<char> workspace_;
  void* aligned_;
};

}  // namespace bespoke
