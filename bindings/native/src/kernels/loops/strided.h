// SPDX-License-Identifier: Apache-2.0
// Loops over a few rows with any strides. Sums of products run over LANES partial sums in a fixed order, so that bits are the same
// whatever the width of a vector.
#pragma once

#include "kernels/loops/elementwise.h"

namespace bespoke::kernels {

template <class S>
struct Strided {
  using vec = typename S::vec;
  static constexpr int VL = S::VL, G = LANES / VL;  // vectors that make up the lanes

  // Elements of a row: VL of them or fewer. What lies behind the last one is not read.
  static vec some(const float* p, int64_t stride, int64_t count) {
    if (stride == 1 && count >= VL) return S::load(p);
    float elements[VL];
    gather(p, stride, count, elements);
    return S::load(elements);
  }

  static void put(float* p, int64_t stride, int64_t count, vec v) {
    if (stride == 1 && count >= VL) return S::store(p, v);
    float elements[VL];
    S::store(elements, v);
    scatter(p, stride, count, elements);
  }

  __attribute__((noinline)) static void gather(const float* p, int64_t stride, int64_t count, float* to) {
    for (int64_t i = 0; i < VL; i++) to[i] = p[(i < count ? i : 0) * stride];
  }

  __attribute__((noinline)) static void scatter(float* p, int64_t stride, int64_t count, const float* from) {
    for (int64_t i = 0; i < VL && i < count; i++) p[i * stride] = from[i];
  }

  // The rows of three outer dimensions: row(to, a, b).
  template <class F>
  static void rows(const StridedLoop& l, F row) {
    for (int64_t i = 0; i < l.dims[0]; i++)
      for (int64_t j = 0; j < l.dims[1]; j++)
        for (int64_t k = 0; k < l.dims[2]; k++) {
          const auto at = [&](const StridedOperand& o) { return o.data + i * o.strides[0] + j * o.strides[1] + k * o.strides[2]; };
          row(at(l.to), at(l.a), at(l.b));
        }
  }

  template <class F>
  static void each(const StridedLoop& l, F operation) {
    const int64_t t = l.to.strides[3], x = l.a.strides[3], y = l.b.strides[3];
    rows(l, [&](float* to, const float* a, const float* b) {
      vec first = S::all(*a), second = S::all(*b);  // where they are repeated
      for (int64_t i = 0, left = l.dims[3]; left > 0; i += VL, left -= VL) {
        if (x) first = some(a + i * x, x, left);
        if (y) second = some(b + i * y, y, left);
        put(to + i * t, t, left, operation(first, second));
      }
    });
  }

  static void inverse_roots(const StridedLoop& l) {
    rows(l, [&](float* to, const float* a, const float*) {
      for (int64_t i = 0; i < l.dims[3]; i++) to[i * l.to.strides[3]] = 1.0f / __builtin_sqrtf(a[i * l.a.strides[3]]);
    });
  }

  // The sum of a_i b_i where both lie side by side, or are one number.
  static float dot(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t count) {
    const auto lane = [](const float* p, int64_t stride, int64_t j) { return stride ? S::load(p + j) : S::all(*p); };
    vec sum[G];
    UNROLL for (int g = 0; g < G; g++) sum[g] = S::all(0.0f);
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
      UNROLL for (int g = 0; g < G; g++) sum[g] = S::fused(lane(a, a_stride, i + g * VL), lane(b, b_stride, i + g * VL), sum[g]);
    float rest[2][LANES] = {}, lanes[LANES];
    for (int64_t j = i; j < count; j++) rest[0][j - i] = a[j * a_stride], rest[1][j - i] = b[j * b_stride];
    UNROLL for (int g = 0; g < G; g++) S::store(lanes + g * VL, S::fused(S::load(rest[0] + g * VL), S::load(rest[1] + g * VL), sum[g]));
    for (int64_t half = LANES / 2; half > 0; half /= 2)
      for (int64_t n = 0; n < half; n++) lanes[n] += lanes[n + half];
    return lanes[0];
  }

  // dims: batch, rows, columns, summands; a does not depend on the column. Where summands do not lie side by side, columns are vectors.
  static void product(const StridedLoop& l) {
    const int64_t x = l.a.strides[3], y = l.b.strides[3];
    if ((x == 0 || x == 1) && (y == 0 || y == 1)) {
      rows(l, [&](float* to, const float* a, const float* b) { *to = dot(a, x, b, y, l.dims[3]); });
      return;
    }
    const int64_t t = l.to.strides[2], column = l.b.strides[2];
    for (int64_t i = 0; i < l.dims[0]; i++)
      for (int64_t j = 0; j < l.dims[1]; j++)
        for (int64_t k = 0; k < l.dims[2]; k += VL) {
          const float* a = l.a.data + i * l.a.strides[0] + j * l.a.strides[1];
          const float* b = l.b.data + i * l.b.strides[0] + j * l.b.strides[1] + k * column;
          const int64_t left = l.dims[2] - k;
          vec sum = S::all(0.0f);
          for (int64_t n = 0; n < l.dims[3]; n++) sum = S::fused(S::all(a[n * x]), some(b + n * y, column, left), sum);
          put(l.to.data + i * l.to.strides[0] + j * l.to.strides[1] + k * t, t, left, sum);
        }
  }

  static void strided(const StridedLoop& l) {
    switch (l.operation) {
      case Loop::Copy:
        return each(l, [](vec x, vec) { return x; });
      case Loop::Add:
        return each(l, [](vec x, vec y) { return x + y; });
      case Loop::Subtract:
        return each(l, [](vec x, vec y) { return x - y; });
      case Loop::Multiply:
        return each(l, [](vec x, vec y) { return x * y; });
      case Loop::Divide:
        return each(l, [](vec x, vec y) { return x / y; });
      case Loop::Sigmoid:
        return each(l, [](vec x, vec) { return Elements<S>::sigmoid(x); });
      case Loop::Tanh:
        return each(l, [](vec x, vec) { return Elements<S>::hyperbolic_tangent(x); });
      case Loop::Rsqrt:
        return inverse_roots(l);
      case Loop::Product:
        return product(l);
    }
  }
};

}  // namespace bespoke::kernels
