// SPDX-License-Identifier: Apache-2.0
// Vectors of AVX-512 (F, BW, DQ, VL), and what both of its tables are made of. Each including file has copies of its own.
#pragma once

#include <immintrin.h>

#include "table.h"

namespace bespoke::kernels {
namespace {

constexpr int VL = 16, NR = 32;
typedef __m512 vec;
inline vec load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, vec v) { _mm512_storeu_ps(p, v); }
inline vec all(float f) { return _mm512_set1_ps(f); }
inline vec fused(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }

#include "decode.h"
#include "decode_avx512.h"

}  // namespace
}  // namespace bespoke::kernels
