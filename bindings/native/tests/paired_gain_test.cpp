// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <doctest/doctest.h>
#include <random>

#include "train/paired_gain.h"

using namespace bespoke;

namespace {
constexpr double kNormal = 1.9599639845400545;  // its 97.5% quantile
}

TEST_CASE("Student's t, against its published table (97.5%, one-sided)") {
  const std::pair<int64_t, double> table[] = {{3, 3.182},  {4, 2.776},  {5, 2.571},  {7, 2.365},
                                              {10, 2.228}, {20, 2.086}, {30, 2.042}, {120, 1.980}};
  for (const auto& [degrees, expected] : table) CHECK(student_t(kNormal, degrees) == doctest::Approx(expected).epsilon(0.008));
}

TEST_CASE("of texts of one length it is the standard error of the mean") {
  const std::vector<Pair> pairs = {{20, 18, 10}, {30, 25, 10}, {25, 26, 10}, {22, 19, 10}};  // gains 0.2, 0.5, -0.1, 0.3 a token
  const double deviation = std::sqrt((0.025 * 0.025 + 0.275 * 0.275 + 0.325 * 0.325 + 0.075 * 0.075) / 3);
  CHECK(*standard_error(pairs) == doctest::Approx(deviation / 2));
  CHECK_FALSE(standard_error({{20, 18, 10}}));
  CHECK_FALSE(standard_error({}));
  CHECK(std::isnan(*standard_error({{20, std::nan(""), 10}, {1, 1, 1}})));
}

TEST_CASE("equally good adapters pass in about one of forty, of few texts of all lengths") {
  std::mt19937 random(11);
  std::normal_distribution<double> noise(0, 0.1);
  int passed = 0, all = 20000;
  for (int trial = 0; trial < all; trial++) {
    std::vector<Pair> pairs;
    double gained = 0, tokens = 0;
    for (int text = 0; text < 4 + trial % 5; text++) {
      const auto length = static_cast<int64_t>(random() % 50 + 20);
      const double gain = noise(random) * static_cast<double>(length);
      pairs.push_back({100, 100 - gain, length});
      gained += gain, tokens += static_cast<double>(length);
    }
    passed += gained / tokens > *standard_error(pairs) * student_t(kNormal, static_cast<int64_t>(pairs.size()) - 1);
  }
  CHECK(passed < all * 0.04);
  CHECK(passed > all * 0.015);
}
