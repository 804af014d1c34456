// SPDX-License-Identifier: Apache-2.0
// Noise that is regenerated instead of stored: Philox4x32-10 by counter, the same values as sdk/bespoke/rules/noise.py.
//
// Element i of a tensor comes from key (seed mod 2^32, seed div 2^32) and counter (i div 4, block << 16 | tensor, query, step);
// of the four words it takes number i mod 4 (normals: the pair that holds it). The paper and the rules are in noise.py.
#pragma once

#include <array>
#include <cstdint>

#include "enums.h"
#include "kernels/int4.h"

namespace bespoke {

using Words = std::array<uint32_t, 4>;

// Words of one counter under key `seed`.
Words philox(const Words& counter, uint64_t seed);

// Elements [first, first + count) of the tensor's z; `first` is a multiple of 4. block, tensor below 2^16, query below 2^31.
void noise(float* out, int64_t count, uint64_t seed, uint32_t step, uint32_t query, uint32_t block, uint32_t tensor,
           Distribution distribution, int64_t first = 0, const kernels::Parallel& parallel = kernels::serial);

}  // namespace bespoke
