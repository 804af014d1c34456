// SPDX-License-Identifier: Apache-2.0
// Arrays computed in an order and in portions that keep memory to what the target measured when it compiled.
#pragma once

#include <vector>

#include <mlx/mlx.h>

namespace bespoke {

// Computes what `results` are made of, which are the only handles left of the graph. Left to itself, MLX runs up to a hundred steps
// ahead of what is computed and holds all that they will need: the peak of a call is then a matter of scheduling. Here a step whose
// operands and results together reach kAloneBytes is waited for before the next begins; smaller ones go in portions of as much.
// So a call takes at most what it takes step by step, and kAloneBytes: ALONE_BYTES in the target's memory.py.
void evaluate(const std::vector<mlx::core::array>& results);

constexpr size_t kAloneBytes = size_t{1} << 20;

}  // namespace bespoke
