// SPDX-License-Identifier: Apache-2.0
#include "federated/private_numbers.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "platform/random.h"

namespace bespoke {

namespace {

constexpr double kDelta = 1e-5;
constexpr double kGrid = 1.0 / 1024;  // of a standard deviation of the noise
constexpr int kExactBits = 16;        // significant ones of a number without noise
constexpr double kPi = 3.14159265358979323846;

double uniform() {  // above 0, at most 1
  uint64_t bits;
  draw_from_system(&bits, sizeof bits);
  return static_cast<double>((bits >> 11) + 1) * 0x1p-53;
}

double normal() {  // Box and Muller
  const double radius = std::sqrt(-2 * std::log(uniform()));
  return radius * std::cos(2 * kPi * uniform());
}

// Steps that are powers of two: within a standard deviation, or such that a number keeps so many significant bits.
double grid_of(double deviation) { return std::exp2(std::floor(std::log2(deviation))) * kGrid; }
double grid_of(double number, int bits) {
  int exponent = 0;
  std::frexp(number, &exponent);
  return std::ldexp(1.0, exponent - bits);
}

double rounded(double number, double step) { return std::nearbyint(number / step) * step; }

}  // namespace

std::vector<double> made_private(const std::vector<float>& numbers, const FederationRecord& federation) {
  double squares = 0;
  for (const float number : numbers) squares += double{number} * number;
  const double norm = std::sqrt(squares), factor = norm > federation.clip ? federation.clip / norm : 1;
  const double deviation = federation.noise * federation.clip;
  std::vector<double> sent;
  for (const float number : numbers) {
    const double exact = number * factor;
    sent.push_back(deviation > 0 ? rounded(exact + deviation * normal(), grid_of(deviation)) : rounded(exact, grid_of(exact, kExactBits)));
  }
  return sent;
}

double cost_of_round(const FederationRecord& federation) {
  return federation.noise > 0 ? 1 / (2 * federation.noise * federation.noise) : 0;
}

bool can_pay(double spent, const FederationRecord& federation) {
  constexpr double rounding = 1e-9;  // sums of costs are not exact
  return !federation.budget || spent + cost_of_round(federation) <= *federation.budget * (1 + rounding);
}

std::optional<double> epsilon_of(double rho, const FederationRecord& federation) {
  if (!(federation.noise > 0)) return std::nullopt;
  return rho + 2 * std::sqrt(rho * std::log(1 / kDelta));
}

std::vector<size_t> drawn_rows(size_t count, size_t most) {
  std::vector<size_t> rows(count);
  std::iota(rows.begin(), rows.end(), size_t{0});
  const size_t taken = std::min(count, most);
  for (size_t i = 0; i < taken; i++) {
    const auto ahead = static_cast<size_t>((1 - uniform()) * static_cast<double>(count - i));
    std::swap(rows[i], rows[i + std::min(ahead, count - i - 1)]);
  }
  rows.resize(taken);
  return rows;
}

}  // namespace bespoke
