// SPDX-License-Identifier: Apache-2.0
// What of the kernels can be said without a reference: the table that is chosen is there, calls do not share anything. Their
// numbers are held against torch by tests/native/test_kernels.py.
#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "kernels/table.h"

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
    std::vector<Line> workspace(product_workspace_bytes(1) / sizeof(Line));
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

TEST_CASE("workspace does not grow with rows or with more threads than work on one product") {
  CHECK(product_workspace_bytes(0) == product_workspace_bytes(1));
  CHECK(product_workspace_bytes(100) == product_workspace_bytes(8));
  CHECK(head_workspace_bytes(100000, 2) == head_workspace_bytes(256, 2));
  CHECK(head_workspace_bytes(1, 2) < head_workspace_bytes(256, 2));
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
