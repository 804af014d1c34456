// SPDX-License-Identifier: Apache-2.0
// Online softmax over a sub-tile of logits. Sums run over LANES partial sums in a fixed order, so that bits are the same whatever
// the width of a vector.
#pragma once

#include "kernels/loops/weight_rows.h"

namespace bespoke::kernels {

// S: VL floats in `vec`, load, store, all, fused (a * b + c), larger (the second where the first is not a number),
// bits_to_exponent (2^n of the low bits n of a float) and zero_where_less.
template <class S>
struct Exponentials {
  using vec = typename S::vec;
  static constexpr int VL = S::VL, G = LANES / VL;  // vectors that make up the lanes

  // exp(x) for x <= 0, to 1.5 ulp, and 0 below the smallest normal number; what is not a number stays that.
  // x = n ln 2 + r with |r| <= ln 2 / 2; e^r by a polynomial (Cephes' expf, one term more); 2^n by its exponent bits.
  static vec exponential(vec x) {
    const vec magic = S::all(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer, whose bits are the low bits of the sum
    const vec shifted = S::fused(x, S::all(1.44269504f), magic);
    const vec n = shifted - magic;
    vec r = S::fused(n, S::all(-0.693359375f), x);
    r = S::fused(n, S::all(2.12194440e-4f), r);
    vec p = S::all(1.9875691500e-4f);
    p = S::fused(p, r, S::all(1.3981999507e-3f));
    p = S::fused(p, r, S::all(8.3334519073e-3f));
    p = S::fused(p, r, S::all(4.1665795894e-2f));
    p = S::fused(p, r, S::all(1.6666665459e-1f));
    p = S::fused(p, r, S::all(5.0000001201e-1f));
    p = S::fused(p, r * r, r) + S::all(1.0f);
    const vec power = S::bits_to_exponent(shifted);
    return S::zero_where_less(x, S::all(-87.0f), p * power);
  }

  // z becomes exp(z - highest); returns the sum. `padded`: a multiple of LANES.
  static float exponentials(float* z, int64_t padded, float highest) {
    vec sum[G];
    UNROLL for (int g = 0; g < G; g++) sum[g] = S::all(0.0f);
    for (int64_t j = 0; j < padded; j += LANES) UNROLL for (int g = 0; g < G; g++) {
        const vec p = exponential(S::load(z + j + g * VL) - S::all(highest));
        S::store(z + j + g * VL, p);
        sum[g] += p;
      }
    float lanes[LANES];
    UNROLL for (int g = 0; g < G; g++) S::store(lanes + g * VL, sum[g]);
    for (int64_t half = LANES / 2; half > 0; half /= 2)
      for (int64_t i = 0; i < half; i++) lanes[i] += lanes[i + half];
    return lanes[0];
  }

  static void softmax_row(const Softmax& s, int64_t t) {
    float* z = s.z + t * LOGITS_STRIDE;
    const int64_t padded = (s.count + LANES - 1) / LANES * LANES;
    for (int64_t j = s.count; j < padded; j++) z[j] = LEAST;

    vec top[G];
    UNROLL for (int g = 0; g < G; g++) top[g] = S::load(z + g * VL);
    for (int64_t j = LANES; j < padded; j += LANES) UNROLL for (int g = 0; g < G; g++) top[g] = S::larger(S::load(z + j + g * VL), top[g]);
    float lanes[LANES];
    UNROLL for (int g = 0; g < G; g++) S::store(lanes + g * VL, top[g]);
    float highest = lanes[0];
    for (int64_t i = 1; i < LANES; i++) highest = lanes[i] > highest ? lanes[i] : highest;

    const float before = s.from.m[t];
    if (highest > before) {
      int64_t j = 0;
      while (j < s.count - 1 && z[j] != highest) j++;  // the first of equal ones
      s.to.best[t] = s.first + j;
    } else {
      s.to.best[t] = s.from.best[t];
      highest = before;
    }
    const int64_t target = s.targets[t] - s.first;
    s.to.label[t] = target >= 0 && target < s.count ? z[target] : s.from.label[t];

    const float total = exponentials(z, padded, highest);
    float kept[VL];
    S::store(kept, exponential(S::all(before - highest)));
    s.keep[t] = kept[0];
    s.to.l[t] = s.from.l[t] * kept[0] + total;
    s.to.m[t] = highest;
  }

  static void softmax(const Softmax& s, int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t++) softmax_row(s, t);
  }
};

}  // namespace bespoke::kernels
