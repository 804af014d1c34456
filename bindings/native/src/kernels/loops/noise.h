// SPDX-License-Identifier: Apache-2.0
// Box-Muller over words of Philox, all in double, rounded to float once; tests/conformance/noise.json holds the answers. Plain
// arithmetic in one order, so that the bits are those of every processor: the compiler turns the loops over counters into vectors
// of the including file's instruction set, and may not fuse a multiplication with an addition.
#pragma once

#include "kernels/loops/philox.h"

constexpr double kTwoPi = 6.283185307179586;  // the double nearest to 2 pi: the angle is its product, rounded to double
constexpr double kUnit = 0x1p-32;
constexpr int kCounters = 64;  // made together

inline double from_bits(uint64_t bits) {
  double value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

inline uint64_t to_bits(double value) {
  uint64_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
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
  const double even =
      z * (6.666666666666735130e-01 + w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
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
      const double radius = __builtin_sqrt(natural_log((first[j] + 0.5) * kUnit) * -2.0);
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

// `count` elements, from the one whose counter this is.
void noise(float* out, int64_t count, const uint32_t* counter, uint64_t seed, bool rademacher) {
  constexpr int64_t kElements = 4 * kCounters;
  uint32_t at[4] = {counter[0], counter[1], counter[2], counter[3]};
  Piece<kCounters> piece;
  for (int64_t done = 0; done < count; done += kElements, at[0] += kCounters) {
    draw(piece, at, seed);
    const bool whole = count - done >= kElements;
    float last[kElements];
    float* to = whole ? out + done : last;
    rademacher ? signs(to, piece) : normals(to, piece);
    if (!whole) __builtin_memcpy(out + done, last, sizeof(float) * static_cast<size_t>(count - done));
  }
}
