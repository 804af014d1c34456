// SPDX-License-Identifier: Apache-2.0
// The choice of threads on simulated phones. Products are shared out as kernels/direct.cpp does: threads take pieces as they get free.
#include <algorithm>
#include <doctest/doctest.h>
#include <functional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "exec/thread_choice.h"

using namespace bespoke;

namespace {

using Rates = std::vector<double>;  // of cores, fastest first, in multiply-adds a nanosecond

// Estimates for real cores; what matters is how they differ.
constexpr double kPrime = 31, kBig = 16, kMiddle = 10, kLittle = 5, kPaired = 3.8;  // paired: two share one vector unit
constexpr int64_t kRows = 256, kBlocks = 24;
constexpr double kSerial = 0.02;  // of a step on one core
constexpr double kWaking = 5000;  // nanoseconds a thread, for each product
const std::vector<std::pair<int64_t, int64_t>> kProducts = {{896, 896},  {128, 896},  {128, 896}, {896, 896},
                                                            {4864, 896}, {4864, 896}, {896, 4864}};

Rates cores(const std::vector<std::pair<int, double>>& classes) {
  Rates rates;
  for (const auto& [count, rate] : classes) rates.insert(rates.end(), static_cast<size_t>(count), rate);
  return rates;
}

double product_seconds(const Rates& rates, size_t threads, int64_t out, int64_t in) {
  const auto divided = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const auto shares = static_cast<int64_t>(threads);
  const int64_t width = threads == 1 ? 64 : std::min<int64_t>(64, divided(divided(out, 4 * shares), 32) * 32);
  const int64_t across = divided(out, width), height = divided(kRows, across >= shares ? 1 : divided(shares, across));
  std::priority_queue<std::pair<double, double>, std::vector<std::pair<double, double>>, std::greater<>> free;  // when, its rate
  for (size_t i = 0; i < threads; i++) free.emplace(0, rates[i]);
  double end = 0;
  for (int64_t t = 0; t < kRows; t += height)
    for (int64_t n = 0; n < out; n += width) {
      const auto [from, rate] = free.top();
      free.pop();
      const double to = from + static_cast<double>(std::min(width, out - n) * std::min(height, kRows - t) * in) / rate;
      free.emplace(to, rate);
      end = std::max(end, to);
    }
  return (end + kWaking * static_cast<double>(threads)) * 1e-9;
}

double step_seconds(const Rates& rates, int32_t threads) {
  double seconds = 0;
  for (const auto& [out, in] : kProducts)
    seconds += 2 * product_seconds(rates, static_cast<size_t>(threads), out, in) +
               product_seconds(rates, static_cast<size_t>(threads), in, out) +
               kSerial * static_cast<double>(3 * out * in * kRows) * 1e-9 / rates.front();
  return kBlocks * seconds;
}

double best_seconds(const Rates& rates) {
  double best = step_seconds(rates, 1);
  for (int32_t threads = 2; threads <= static_cast<int32_t>(rates.size()); threads++) best = std::min(best, step_seconds(rates, threads));
  return best;
}

struct Phone {
  std::string name;
  Rates rates, hot;
};
const Phone kPhones[] = {
    {"2 equal", cores({{2, kBig}}), cores({{2, kBig / 2}})},
    {"4 equal", cores({{4, kMiddle}}), cores({{4, kMiddle / 2}})},
    {"1+3+4, paired", cores({{1, kPrime}, {3, kBig}, {4, kPaired}}), cores({{4, kBig / 3}, {4, kPaired}})},
    {"2+6", cores({{2, kMiddle}, {6, kLittle}}), cores({{8, kLittle}})},
    {"4+4", cores({{4, kBig}, {4, kLittle}}), cores({{4, kBig / 2}, {4, kLittle}})},
    {"1+4+3", cores({{1, kPrime}, {4, kBig}, {3, kLittle}}), cores({{5, kBig / 2}, {3, kLittle}})},
    {"2+2+4", cores({{2, kPrime}, {2, kBig}, {4, kLittle}}), cores({{4, kBig / 2}, {4, kLittle}})},
    {"8 of which 6 are nearly off", cores({{2, kBig}, {6, 0.2}}), cores({{2, kBig / 2}, {6, 0.2}})},
};

// Steps are up to 8% longer than they would be alone, and one in ten takes twice as long.
class Noise {
 public:
  double operator()(double seconds) { return seconds * (one_(random_) < 0.1 ? 2 : 1 + 0.08 * one_(random_)); }

 private:
  std::mt19937 random_{7};
  std::uniform_real_distribution<> one_{0, 1};
};

double exactly(double seconds) { return seconds; }

// How many times as long as with the best number the next step takes, after `steps` steps.
double regret(ThreadChoice& choice, const Rates& rates, int steps, const std::function<double(double)>& measured) {
  for (int i = 0; i < steps; i++) choice.add(measured(step_seconds(rates, choice.threads())));
  return step_seconds(rates, choice.threads()) / best_seconds(rates);
}

ThreadChoice choice_for(const Phone& phone) { return ThreadChoice(static_cast<int32_t>(phone.rates.size())); }

}  // namespace

TEST_CASE("after six steps the number of threads is within 10% of the best, and after heat again") {
  int changed = 0;
  for (const Phone& phone : kPhones) {
    CAPTURE(phone.name);
    ThreadChoice choice = choice_for(phone);
    CHECK(regret(choice, phone.rates, 6, exactly) < 1.1);
    const int32_t cold = choice.threads();
    CHECK(regret(choice, phone.hot, 3 + 6, exactly) < 1.1);  // three slow steps are what tells
    changed += choice.threads() != cold;
  }
  CHECK(changed > 0);
}

TEST_CASE("noise seldom makes it try again, and does not spoil what it keeps") {
  constexpr int kSteps = 500;
  for (const Phone& phone : kPhones) {
    CAPTURE(phone.name);
    ThreadChoice choice = choice_for(phone);
    Noise noise;
    CHECK(regret(choice, phone.rates, 6, noise) < 1.1 * 1.08);
    const int32_t kept = choice.threads();
    int others = 0;
    for (int step = 0; step < kSteps; step++) {
      regret(choice, phone.rates, 1, noise);
      others += choice.threads() != kept;
    }
    CHECK(others <= kSteps / 50);
  }
}

TEST_CASE("a number is tried twice, in turns, and one disturbed step neither decides nor starts another trial") {
  ThreadChoice choice(8);
  std::vector<int32_t> tried;
  for (int step = 0; step < 6; step++) {
    tried.push_back(choice.threads());
    const bool disturbed = step == 2;  // with 4 threads, which are the fastest
    choice.add(disturbed ? 100 : choice.threads() == 4 ? 1 : 1.2);
  }
  CHECK(tried == std::vector<int32_t>{8, 2, 4, 8, 2, 4});
  CHECK(choice.threads() == 4);
  for (const double seconds : {1.25, 5.0, 5.0, 1.25, 5.0, 5.0}) choice.add(seconds);
  CHECK(choice.threads() == 4);
  choice.add(1.31);
  CHECK(choice.threads() == 8);  // the third in a row
}

TEST_CASE("there is nothing to choose among one or two threads, and two numbers among three or four") {
  for (const int32_t most : {1, 2, 3, 4}) {
    ThreadChoice choice(most);
    std::set<int32_t> tried;
    for (int step = 0; step < 6; step++) {
      tried.insert(choice.threads());
      choice.add(1);
    }
    CHECK(tried == (most > 2 ? std::set<int32_t>{2, most} : std::set<int32_t>{most}));
  }
}
