// SPDX-License-Identifier: Apache-2.0
// Elementwise operations that follow each other, over SPAN elements at a time: what passes between them stays in the first cache.
#pragma once

#include "kernels/loops/softmax.h"

namespace bespoke::kernels {

template <class S>
struct Elements {
  using vec = typename S::vec;

  // 1 / (1 + e^-x) to 2 ulp, by an exponential that cannot overflow.
  static vec sigmoid(vec x) {
    const vec e = Exponentials<S>::exponential(S::all(0.0f) - S::larger(x, S::all(0.0f) - x));
    return S::larger(S::zero_where_less(x, S::all(0.0f), S::all(1.0f)), e) / (S::all(1.0f) + e);
  }

  // tanh to 3 ulp: Cephes' tanhf.
  static vec hyperbolic_tangent(vec x) {
    const vec sign = S::zero_where_less(x, S::all(0.0f), S::all(2.0f)) - S::all(1.0f), size = S::larger(x, S::all(0.0f) - x);
    const vec e = Exponentials<S>::exponential(size * S::all(-2.0f));
    const vec large = (S::all(1.0f) - e) / (S::all(1.0f) + e);
    const vec a = S::all(0.0f) - S::larger(S::all(-1.0f), S::all(0.0f) - size), z = a * a;  // beyond 1 the polynomial does not matter
    vec p = S::all(-5.70498872745e-3f);
    p = S::fused(p, z, S::all(2.06390887954e-2f));
    p = S::fused(p, z, S::all(-5.37397155531e-2f));
    p = S::fused(p, z, S::all(1.33314422036e-1f));
    p = S::fused(p, z, S::all(-3.33332819422e-1f));
    const vec small = S::fused(p * z, a, a);
    return sign * (small + S::zero_where_less(size, S::all(0.625f), large - small));
  }

  template <class F>
  static void each(float* to, const float* a, const float* b, int64_t count, F operation) {
    for (int64_t i = 0; i < count; i += S::VL) S::store(to + i, operation(S::load(a + i), S::load(b + i)));
  }

  // `registers` of `count` elements, a multiple of LANES.
  static void elementwise(const ElementwiseStep* steps, int64_t number, float* const* registers, int64_t count) {
    for (int64_t s = 0; s < number; s++) {
      const ElementwiseStep& step = steps[s];
      float* to = registers[step.to];
      const float *a = registers[step.a], *b = registers[step.b];
      switch (step.operation) {
        case Elementwise::Add:
          each(to, a, b, count, [](vec x, vec y) { return x + y; });
          break;
        case Elementwise::Subtract:
          each(to, a, b, count, [](vec x, vec y) { return x - y; });
          break;
        case Elementwise::Multiply:
          each(to, a, b, count, [](vec x, vec y) { return x * y; });
          break;
        case Elementwise::Sigmoid:
          each(to, a, a, count, [](vec x, vec) { return sigmoid(x); });
          break;
        case Elementwise::Tanh:
          each(to, a, a, count, [](vec x, vec) { return hyperbolic_tangent(x); });
          break;
        case Elementwise::Constant:
          for (int64_t i = 0; i < count; i += S::VL) S::store(to + i, S::all(step.number));
          break;
      }
    }
  }
};

}  // namespace bespoke::kernels
