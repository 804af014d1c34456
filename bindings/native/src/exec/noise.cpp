// SPDX-License-Identifier: Apache-2.0
// Philox and Box-Muller, all in double, rounded to float once; tests/conformance/noise.json holds the answers. Plain arithmetic in
// one order, so that the bits are those of every processor.
#include "exec/noise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "error.h"

namespace bespoke {

namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
constexpr uint32_t kKeyStep0 = 0x9E3779B9u, kKeyStep1 = 0xBB67AE85u;
constexpr double kTwoPi = 6.283185307179586;  // the double nearest to 2 pi: the angle is its product, rounded to double
constexpr double kUnit = 0x1p-32;
constexpr int kCounters = 64;  // made together: the compiler turns each loop over them into vector instructions

template <int kCount>
struct Piece {  // words of so many counters that follow each other
  uint32_t words[4][kCount];
};

double from_bits(uint64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

uint64_t to_bits(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// ln of a normal number above 0, to less than an ulp: fdlibm's polynomial, without branches. A library's own functions take one
// number at a time: 24 ns an element of noise with glibc's, 8 with these (SSE2).
inline double natural_log(double u) {
  constexpr uint64_t kRootHalf = 0x3FE6A09E667F3BCDu;
  const uint64_t shifted = to_bits(u) + (0x3FF0000000000000u - kRootHalf);
  const double k = from_bits(0x4330000000000000u | shifted >> 52) - (0x1p52 + 1023);  // the exponent, as a number
  const double f = from_bits((shifted & 0x000FFFFFFFFFFFFFu) + kRootHalf) - 1.0;      // of [sqrt(1/2), sqrt(2)) - 1
  const double s = f / (2.0 + f), z = s * s, w = z * z, half = 0.5 * f * f;
  const double odd = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
  const double even = z * (6.666666666666735130e-01 +
                           w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
  return s * (half + (odd + even)) + k * 1.90821492927058770002e-10 - half + f + k * 6.93147180369123816490e-01;
}

// cos and sin of an angle from 0 to 2 pi, to about an ulp: fdlibm's polynomials on the nearest quarter turn.
inline void cosine_and_sine(double angle, double& cosine, double& sine) {
  constexpr double kRound = 0x1.8p52;  // added and taken away: rounds to a whole number, which stands in the low bits meanwhile
  const double turned = angle * 6.36619772367581382433e-01 + kRound;
  const double quarter = turned - kRound;
  const uint64_t q = to_bits(turned);
  const double y = (angle - quarter * 1.57079632673412561417e+00) - quarter * 6.07710050650619224932e-11;
  const double z = y * y, w = z * z;
  const double high = z * (-1.98412698298579493134e-04 + z * 2.75573137070700676789e-06) +
                      z * w * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10);
  const double s = y + z * y * (-1.66666666666666324348e-01 + z * (8.33333333332248946124e-03 + high));
  const double r = z * (4.16666666666666019037e-02 + z * (-1.38888888888741095749e-03 + z * 2.48015872894767294178e-05)) +
                   w * w * (-2.75573143513906633035e-07 + z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11));
  const double half = 0.5 * z, rest = 1.0 - half;
  const double c = rest + (((1.0 - rest) - half) + z * r);
  const uint64_t swap = 0 - (q & 1), mine = to_bits(s), other = to_bits(c);
  sine = from_bits(((mine & ~swap) | (other & swap)) ^ (q & 2) << 62);
  cosine = from_bits(((other & ~swap) | (mine & swap)) ^ ((q + 1) & 2) << 62);
}

void normals(float* out, const Piece<kCounters>& piece) {
  for (int pair = 0; pair < 4; pair += 2) {
    const uint32_t *first = piece.words[pair], *second = piece.words[pair + 1];
    float cosines[kCounters], sines[kCounters];
    for (int j = 0; j < kCounters; j++) {
      const double radius = std::sqrt(natural_log((first[j] + 0.5) * kUnit) * -2.0);
      double cosine, sine;
      cosine_and_sine((second[j] + 0.5) * kUnit * kTwoPi, cosine, sine);
      cosines[j] = static_cast<float>(cosine * radius);
      sines[j] = static_cast<float>(sine * radius);
    }
    for (int j = 0; j < kCounters; j++) {
      out[4 * j + pair] = cosines[j];
      out[4 * j + pair + 1] = sines[j];
    }
  }
}

void signs(float* out, const Piece<kCounters>& piece) {
  for (int lane = 0; lane < 4; lane++)
    for (int j = 0; j < kCounters; j++) out[4 * j + lane] = piece.words[lane][j] & 1 ? 1.0f : -1.0f;
}

// The counters (first + j, counter[1], counter[2], counter[3]).
template <int kCount>
void draw(Piece<kCount>& piece, const Words& counter, uint64_t seed) {
  for (int j = 0; j < kCount; j++) {
    piece.words[0][j] = counter[0] + static_cast<uint32_t>(j);
    for (int word = 1; word < 4; word++) piece.words[word][j] = counter[static_cast<size_t>(word)];
  }
  uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; round++) {
    for (int j = 0; j < kCount; j++) {
      const uint64_t product0 = static_cast<uint64_t>(kMultiplier0) * piece.words[0][j];
      const uint64_t product1 = static_cast<uint64_t>(kMultiplier1) * piece.words[2][j];
      piece.words[0][j] = static_cast<uint32_t>(product1 >> 32) ^ piece.words[1][j] ^ key0;
      piece.words[1][j] = static_cast<uint32_t>(product1);
      piece.words[2][j] = static_cast<uint32_t>(product0 >> 32) ^ piece.words[3][j] ^ key1;
      piece.words[3][j] = static_cast<uint32_t>(product0);
    }
    key0 += kKeyStep0;
    key1 += kKeyStep1;
  }
}

void check_range(const char* name, uint64_t value, int bits) {
  if (value >> bits)
    throw Error(Kind::Plan, std::string("noise: ") + name, std::to_string(value),
                "a whole number from 0 to 2^" + std::to_string(bits) + " - 1", "The counter has no room for it; use a smaller one");
}

}  // namespace

Words philox(const Words& counter, uint64_t seed) {
  Piece<1> piece;
  draw(piece, counter, seed);
  return {piece.words[0][0], piece.words[1][0], piece.words[2][0], piece.words[3][0]};
}

void noise(float* out, int64_t count, uint64_t seed, uint32_t step, uint32_t query, uint32_t block, uint32_t tensor,
           Distribution distribution, int64_t first) {
  check_range("query", query, 31);
  check_range("block", block, 16);
  check_range("tensor", tensor, 16);
  check_range("last index", static_cast<uint64_t>(count > 0 ? first + count - 1 : 0), 34);
  constexpr int64_t kElements = 4 * kCounters;
  const auto fill = distribution == Distribution::rademacher ? signs : normals;
  Piece<kCounters> piece;
  for (int64_t done = 0; done < count; done += kElements) {
    draw(piece, {static_cast<uint32_t>((first + done) / 4), block << 16 | tensor, query, step}, seed);
    if (count - done >= kElements) {
      fill(out + done, piece);
      continue;
    }
    float last[kElements];
    fill(last, piece);
    std::copy(last, last + (count - done), out + done);
  }
}

}  // namespace bespoke
