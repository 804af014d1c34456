// SPDX-License-Identifier: Apache-2.0
// Elementwise operations that follow each other, over SPAN elements at a time: what passes between them stays in the first cache.
#pragma once

// 1 / (1 + e^-x) to 2 ulp, by an exponential that cannot overflow.
inline vec sigmoid(vec x) {
  const vec e = exponential(all(0.0f) - larger(x, all(0.0f) - x));
  return larger(zero_where_less(x, all(0.0f), all(1.0f)), e) / (all(1.0f) + e);
}

// tanh to 3 ulp: Cephes' tanhf.
inline vec hyperbolic_tangent(vec x) {
  const vec sign = zero_where_less(x, all(0.0f), all(2.0f)) - all(1.0f), size = larger(x, all(0.0f) - x);
  const vec e = exponential(size * all(-2.0f));
  const vec large = (all(1.0f) - e) / (all(1.0f) + e);
  const vec a = all(0.0f) - larger(all(-1.0f), all(0.0f) - size), z = a * a;  // beyond 1 the polynomial does not matter
  vec p = all(-5.70498872745e-3f);
  p = fused(p, z, all(2.06390887954e-2f));
  p = fused(p, z, all(-5.37397155531e-2f));
  p = fused(p, z, all(1.33314422036e-1f));
  p = fused(p, z, all(-3.33332819422e-1f));
  const vec small = fused(p * z, a, a);
  return sign * (small + zero_where_less(size, all(0.625f), large - small));
}

template <class F>
inline void each(float* to, const float* a, const float* b, int64_t count, F operation) {
  for (int64_t i = 0; i < count; i += VL) store(to + i, operation(load(a + i), load(b + i)));
}

// `registers` of `count` elements, a multiple of LANES.
void elementwise(const ElementwiseStep* steps, int64_t number, float* const* registers, int64_t count) {
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
        for (int64_t i = 0; i < count; i += VL) store(to + i, all(step.number));
        break;
    }
  }
}
