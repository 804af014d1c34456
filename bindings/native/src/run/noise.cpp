// SPDX-License-Identifier: Apache-2.0
// Philox and Box-Muller, all in double, rounded to float once; tests/conformance/noise.json holds the answers.
#include "run/noise.h"

#include <cmath>
#include <string>

#include "error.h"

namespace bespoke {

namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
constexpr uint32_t kKeyStep0 = 0x9E3779B9u, kKeyStep1 = 0xBB67AE85u;
constexpr double kTwoPi = 6.283185307179586;  // the double nearest to 2 pi: the angle is its product, rounded to double
constexpr double kUnit = 0x1p-32;

void normals(float* out, const Words& words) {
  for (int pair = 0; pair < 4; pair += 2) {
    const double radius = std::sqrt(std::log((words[pair] + 0.5) * kUnit) * -2.0);
    const double angle = (words[pair + 1] + 0.5) * kUnit * kTwoPi;
    out[pair] = static_cast<float>(std::cos(angle) * radius);
    out[pair + 1] = static_cast<float>(std::sin(angle) * radius);
  }
}

void signs(float* out, const Words& words) {
  for (int lane = 0; lane < 4; lane++) out[lane] = words[lane] & 1 ? 1.0f : -1.0f;
}

void check_range(const char* name, uint64_t value, int bits) {
  if (value >> bits)
    throw Error(Kind::Plan, std::string("noise: ") + name, std::to_string(value),
                "a whole number from 0 to 2^" + std::to_string(bits) + " - 1", "The counter has no room for it; use a smaller one");
}

}  // namespace

Words philox(const Words& counter, uint64_t seed) {
  uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
  uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; round++) {
    const uint64_t product0 = static_cast<uint64_t>(kMultiplier0) * c0, product1 = static_cast<uint64_t>(kMultiplier1) * c2;
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ key0;
    c1 = static_cast<uint32_t>(product1);
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ key1;
    c3 = static_cast<uint32_t>(product0);
    key0 += kKeyStep0;
    key1 += kKeyStep1;
  }
  return {c0, c1, c2, c3};
}

void noise(float* out, int64_t count, uint64_t seed, uint32_t step, uint32_t query, uint32_t block, uint32_t tensor,
           bool rademacher, int64_t first) {
  check_range("query", query, 31);
  check_range("block", block, 16);
  check_range("tensor", tensor, 16);
  check_range("last index", static_cast<uint64_t>(count > 0 ? first + count - 1 : 0), 34);
  const uint32_t place = block << 16 | tensor;
  const auto fill = rademacher ? signs : normals;
  for (int64_t done = 0; done < count; done += 4) {
    const Words words = philox({static_cast<uint32_t>((first + done) / 4), place, query, step}, seed);
    if (count - done >= 4) {
      fill(out + done, words);
      continue;
    }
    float last[4];
    fill(last, words);
    for (int64_t lane = 0; lane < count - done; lane++) out[done + lane] = last[lane];
  }
}

}  // namespace bespoke
