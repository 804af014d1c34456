// SPDX-License-Identifier: Apache-2.0
#include "tool/bench_model.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <random>

namespace bespoke {

namespace {

constexpr int64_t kWidth = 896, kWidest = 4864;
struct Shape {
  int64_t out, columns;
};
// q, k, v, o, gate, up, down
constexpr Shape kLinears[] = {{kWidth, kWidth},  {128, kWidth},     {128, kWidth},    {kWidth, kWidth},
                              {kWidest, kWidth}, {kWidest, kWidth}, {kWidth, kWidest}};
constexpr size_t kLinearsOfBlock = sizeof kLinears / sizeof kLinears[0];
constexpr int64_t kGroup = 32;
constexpr uint16_t kScale = 0x2000;  // 2^-7: results of a few units, and no exponential overflows
constexpr size_t kAlignment = 64;

}  // namespace

BenchModel::Weights::Weights(int64_t out, int64_t columns, uint64_t seed)
    : out(out), columns(columns), codes(static_cast<size_t>(out * columns / 16)),
      scales(static_cast<size_t>(out * columns / kGroup), kScale) {
  std::mt19937_64 random(seed);
  std::generate(codes.begin(), codes.end(), std::ref(random));
}

kernels::Weight BenchModel::Weights::rows(int64_t begin, int64_t end) const {
  const int64_t groups = columns / kGroup;
  return {reinterpret_cast<const uint8_t*>(codes.data()) + begin * columns / 2,
          scales.data() + begin * groups,
          columns / 2,
          groups,
          end - begin,
          columns};
}

BenchModel::BenchModel(size_t blocks, int64_t vocabulary)
    : blocks_(blocks), vocabulary_(vocabulary), head_(vocabulary, kWidth, 0), x_(kRows * kWidest), y_(kRows * kWidest), m_(kRows),
      l_(kRows), label_(kRows), targets_(kRows), best_(kRows) {
  for (size_t block = 0; block < blocks; block++)
    for (const Shape& shape : kLinears) linears_.emplace_back(shape.out, shape.columns, linears_.size() + 1);
  for (size_t i = 0; i < x_.size(); i++) x_[i] = static_cast<float>(i * 7919 % 2001) / 1000 - 1;  // -1 to 1
  size_t space = std::max(kernels::product_workspace_bytes(), kernels::head_workspace_bytes(kRows)) + kAlignment;
  workspace_.resize(space);
  aligned_ = workspace_.data();
  std::align(kAlignment, space - kAlignment, aligned_, space);
}

void BenchModel::forward(const kernels::Table& table, int64_t rows, const kernels::Parallel& parallel) {
  for (size_t i = 0; i < kLinearsOfBlock; i++) {
    const Weights& w = linears_[next_ * kLinearsOfBlock + i];
    kernels::linear(table, w.rows(0, w.out), x_.data(), w.columns, rows, y_.data(), w.out, aligned_, parallel);
  }
  next_ = (next_ + 1) % blocks_;
}

void BenchModel::transposed(const kernels::Table& table, int64_t rows, const kernels::Parallel& parallel) {
  for (size_t i = 0; i < kLinearsOfBlock; i++) {
    const Weights& w = linears_[next_ * kLinearsOfBlock + i];
    kernels::linear_transposed(table, w.rows(0, w.out), x_.data(), w.out, rows, y_.data(), w.columns, aligned_, parallel);
  }
  next_ = (next_ + 1) % blocks_;
}

int64_t BenchModel::block_weights() const {
  int64_t sum = 0;
  for (const Shape& shape : kLinears) sum += shape.out * shape.columns;
  return sum;
}

void BenchModel::head(const kernels::Table& table, int64_t rows, const kernels::Parallel& parallel) {
  const int64_t chunk = head_weights() / kWidth;
  if (next_head_ + chunk > vocabulary_) next_head_ = 0;
  head_rows(table, rows, next_head_, next_head_ + chunk, parallel);
  next_head_ += chunk;
}

int64_t BenchModel::head_weights() const { return std::min(kHeadRows, vocabulary_) * kWidth; }

void BenchModel::head_rows(const kernels::Table& table, int64_t rows, int64_t begin, int64_t end, const kernels::Parallel& parallel) {
  std::fill(m_.begin(), m_.end(), -1e30f);
  std::fill(l_.begin(), l_.end(), 0.0f);
  const kernels::HeadState state = {m_.data(), l_.data(), label_.data(), best_.data(), y_.data()};
  kernels::head_chunk(table, {head_.rows(begin, end), x_.data(), targets_.data(), rows, kWidth, begin, state, state}, aligned_, parallel);
}

void BenchModel::step(const kernels::Table& table, const kernels::Parallel& parallel) {
  for (size_t block = 0; block < blocks_; block++) forward(table, kRows, parallel);
  for (int64_t begin = 0; begin < vocabulary_; begin += kHeadRows)
    head_rows(table, kRows, begin, std::min(begin + kHeadRows, vocabulary_), parallel);
  for (size_t block = 0; block < blocks_; block++) {
    const size_t same = next_;
    forward(table, kRows, parallel);
    next_ = same;
    transposed(table, kRows, parallel);
  }
}

}  // namespace bespoke
