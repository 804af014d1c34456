// SPDX-License-Identifier: Apache-2.0
// What of the kernels can be said without a reference: the table that is chosen is there, calls do not share anything. Their
// numbers are held against torch by tests/native/test_kernels.py.
#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "kernels/drivers.h"

using namespace bespoke::kernels;

namespace {

struct Example {
  explicit Example(unsigned seed) : codes(OUT * 16 * GROUPS), scales(OUT * GROUPS, 0x2000), x(ROWS * COLUMNS) {
    std::mt19937 random(seed);
    for (uint8_t& code : codes) code = static_cast<uint8_t>(random());
    for (float& value : x) value = static_cast<float>(random() % 2001) / 1000 - 1;
  }
  Weight weight() const { return {codes.data(), scales.data(), 16 * GROUPS, GROUPS, OUT, COLUMNS}; }
  std::vector<float> product() const {
    struct alignas(64) Line {
      char bytes[64];
    };
    std::vector<Line> workspace(product_workspace_bytes() / sizeof(Line));
    std::vector<float> y(ROWS * OUT);
    linear(best_table(), weight(), x.data(), COLUMNS, ROWS, y.data(), OUT, workspace.data(), serial);
    return y;
  }
  static constexpr int64_t ROWS = 37, OUT = 100, COLUMNS = 300, GROUPS = 10;
  std::vector<uint8_t> codes;
  std::vector<uint16_t> scales;
  std::vector<float> x;
};

}  // namespace

TEST_CASE("the best table is one that this processor has") {
  const InstructionSet best = instruction_set(best_table());
  CHECK(table_of(best) == &best_table());
  CHECK(table_of(InstructionSet::Baseline) != nullptr);
  CHECK(name_of(best)[0] != '\0');
}

TEST_CASE("calls on several threads at once do not disturb each other") {
  const Example one(1), two(2);
  const std::vector<float> first = one.product(), second = two.product();
  CHECK(first != second);
  for (int i = 0; i < 20; i++) {
    std::vector<float> a, b;
    std::thread other([&] { b = two.product(); });
    a = one.product();
    other.join();
    CHECK(a == first);
    CHECK(b == second);
  }
}

TEST_CASE("the workspace of the head does not grow with more rows than are held at once") {
  CHECK(head_workspace_bytes(100000) == head_workspace_bytes(256));
  CHECK(head_workspace_bytes(1) < head_workspace_bytes(256));
}

TEST_CASE("nothing is written where there is nothing to compute") {
  const Example example(3);
  float y[4] = {1, 2, 3, 4};
  linear(best_table(), example.weight(), example.x.data(), Example::COLUMNS, 0, y, Example::OUT, nullptr, serial);
  CHECK(y[0] == 1);
}

TEST_CASE("noise has the same bits in every instruction set") {
  const uint32_t counter[4] = {0xFFFFFFF0u, 7u << 16 | 3u, 5, 1000};  // the first word wraps around
  for (const bool rademacher : {false, true}) {
    std::vector<float> expected(1021);  // the last piece is not whole
    table_of(InstructionSet::Baseline)->noise(expected.data(), 1021, counter, 42, rademacher);
    for (const InstructionSet set : {InstructionSet::Avx2, InstructionSet::Avx512, InstructionSet::Amx, InstructionSet::Neon}) {
      const Table* table = table_of(set);
      if (table == nullptr) continue;
      std::vector<float> found(1021);
      table->noise(found.data(), 1021, counter, 42, rademacher);
      CHECK_MESSAGE(found == expected, name_of(set));
    }
  }
}

namespace {

void run_on_threads(void*, size_t tasks, void (*task)(void*, size_t), void* context) {
  std::vector<std::thread> threads;
  for (size_t i = 0; i < tasks; i++) threads.emplace_back(task, context, i);
  for (std::thread& thread : threads) thread.join();
}

// Rows as they are, in tiles of four, in the place of what a processor's own loops prepare.
constexpr int64_t STEP = 4;

void copy_rows(const Operands& o, int64_t t, int64_t K, char* rows) {
  float* to = reinterpret_cast<float*>(rows);
  for (int64_t r = 0; r < STEP; r++)
    for (int64_t k = 0; k < K; k++) to[r * DEPTH + k] = t + r < o.rows ? o.a[(t + r) * o.a_stride + k] : 0.0f;
}

void multiply_rows(const Weight& w, int64_t n0, int64_t n1, const Operands& x, const char* prepared, char*) {
  const float* rows = reinterpret_cast<const float*>(prepared);
  for (int64_t t = 0; t < x.rows; t++)
    for (int64_t n = n0; n < n1; n++) {
      float sum = 0;
      for (int64_t k = 0; k < w.columns; k++)
        sum += rows[t * DEPTH + k] * static_cast<float>((w.codes[n * w.codes_stride + k / 2] >> k % 2 * 4 & 15) - 8);
      float& y = x.c[t * x.c_stride + n];
      y = x.first ? sum : y + sum;
    }
}

void check_prepared(int64_t rows, size_t threads, int64_t buffers) {
  constexpr int64_t OUT = 96, COLUMNS = 700, STRIDE = 352;
  std::vector<uint8_t> codes(OUT * STRIDE);
  std::vector<float> x(static_cast<size_t>(rows * COLUMNS)), y(static_cast<size_t>(rows * OUT), -1.0f);
  std::mt19937 random(1);
  for (uint8_t& code : codes) code = static_cast<uint8_t>(random());
  for (float& value : x) value = static_cast<float>(random() % 16);  // whole numbers, so that sums are exact in any order
  const Weight w = {codes.data(), nullptr, STRIDE, 0, OUT, COLUMNS};
  std::vector<float> scratch(SCRATCH_BYTES / sizeof(float));
  const Parallel parallel = {run_on_threads, nullptr, threads};
  const PreparedLoops loops = {STEP, DEPTH * 4, 64, buffers, copy_rows, multiply_rows, nullptr};
  prepared_product(
      loops, {Direction::Forward, w, {x.data(), COLUMNS, rows, y.data(), OUT, nullptr}, reinterpret_cast<char*>(scratch.data()), parallel});
  std::vector<float> expected;
  for (int64_t t = 0; t < rows; t++)
    for (int64_t n = 0; n < OUT; n++) {
      float sum = 0;
      for (int64_t k = 0; k < COLUMNS; k++)
        sum += x[static_cast<size_t>(t * COLUMNS + k)] *
               static_cast<float>((codes[static_cast<size_t>(n * STRIDE + k / 2)] >> k % 2 * 4 & 15) - 8);
      expected.push_back(sum);
    }
  CHECK(y == expected);
}

}  // namespace

TEST_CASE("rows that threads prepare together are whole before anyone multiplies them") {
  for (const int64_t buffers : {1, 2})
    for (const int64_t rows : {1, 37, 140})  // 140 do not fit into the scratch at once
      for (const size_t threads : {1, 3, 8}) check_prepared(rows, threads, buffers);
}
