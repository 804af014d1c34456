// SPDX-License-Identifier: Apache-2.0
// Attention of some queries over a span of keys, by the tiles of products: scores are queries times a panel of keys, what is read is
// probabilities times a panel of values. A query's result is relative to its largest score in the span, so spans are merged afterwards.
// Every sum is one chain in the order of the keys, and a key that a query does not see adds zero: bits depend neither on the other
// queries nor on who computes.
#pragma once

#include "kernels/loops/direct.h"
#include "kernels/loops/softmax.h"

namespace bespoke::kernels {

// L: the tiles, Direct. S: vectors as for Exponentials.
template <class L, class S>
struct Attend {
  using vec = typename S::vec;
  static constexpr int VL = S::VL;

  // Scores of a query become exp(score - m), where [begin, end) are the keys that it sees; l is their sum.
  static void probabilities(float* z, int64_t begin, int64_t end, int64_t keys, float scale, float& m, float& l) {
    const int64_t padded = (keys + LANES - 1) / LANES * LANES;
    for (int64_t j = 0; j < begin; j++) z[j] = LEAST;
    for (int64_t j = end; j < padded; j++) z[j] = LEAST;
    vec top = S::all(LEAST);
    for (int64_t j = 0; j < padded; j += VL) {
      const vec x = S::load(z + j) * S::all(scale);
      S::store(z + j, x);
      top = S::larger(x, top);
    }
    float lanes[VL];
    S::store(lanes, top);
    m = lanes[0];
    for (int i = 1; i < VL; i++) m = lanes[i] > m ? lanes[i] : m;
    l = Exponentials<S>::exponentials(z, padded, m);
  }

  static void span(const AttentionSpan& a) {
    const Operands queries = {a.q, a.width, a.queries, nullptr, 0, nullptr};
    for (int64_t n = 0; n < a.keys; n += BLOCK)
      for (int64_t k = 0; k < a.width; k += DEPTH) {
        const int64_t K = smaller(DEPTH, a.width - k);
        L::panel_of_columns(a.k + n * a.stride + k, a.stride, a.readable - n, K, a.panel);
        Operands o = queries;
        o.c = a.scores, o.c_stride = LOGITS_STRIDE;
        L::multiply(o, a.q + k, a.panel, K, K, a.scores + n, BLOCK, k == 0, Ahead{});
      }
    for (int64_t i = 0; i < a.queries; i++) {
      const int64_t last = a.position + i / a.heads, end = smaller(last + 1, a.keys);
      const int64_t begin = last - a.window + 1 < 0 ? 0 : last - a.window + 1;
      float* z = a.scores + i * LOGITS_STRIDE;
      if (begin < end) {
        probabilities(z, begin, end, a.keys, a.scale, a.to.m[i], a.to.l[i]);
        continue;
      }
      for (int64_t j = 0; j < a.keys; j++) z[j] = 0.0f;
      a.to.m[i] = LEAST, a.to.l[i] = 0.0f;
    }
    for (int64_t n = 0; n < a.width; n += BLOCK) {
      Operands o = queries;
      o.a = a.scores, o.a_stride = LOGITS_STRIDE, o.c = a.to.sum, o.c_stride = a.sum_stride;
      L::panel_of_rows(a.v + n, a.stride, a.keys, a.width - n, a.panel);
      L::multiply(o, a.scores, a.panel, a.keys, a.keys, a.to.sum + n, smaller(BLOCK, a.width - n), true, Ahead{});
    }
  }

  // What `from` has seen is added to what `to` has, relative to the larger of their largest scores.
  static void merge(const AttentionSums& to, const AttentionSums& from, int64_t queries, int64_t stride) {
    for (int64_t i = 0; i < queries; i++) {
      const float top = from.m[i] > to.m[i] ? from.m[i] : to.m[i];
      float factors[2][LANES];
      S::store(factors[0], Exponentials<S>::exponential(S::all(to.m[i] - top)));
      S::store(factors[1], Exponentials<S>::exponential(S::all(from.m[i] - top)));
      const vec a = S::all(factors[0][0]), b = S::all(factors[1][0]);
      for (int64_t j = i * stride; j < (i + 1) * stride; j += VL)
        S::store(to.sum + j, S::fused(S::load(to.sum + j), a, S::load(from.sum + j) * b));
      to.l[i] = to.l[i] * factors[0][0] + from.l[i] * factors[1][0];
      to.m[i] = top;
    }
  }
};

}  // namespace bespoke::kernels
