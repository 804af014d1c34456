// SPDX-License-Identifier: Apache-2.0
// What is done to the numbers of a round before they may leave the device, and what a round costs.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "format/bundle/manifest.h"

namespace bespoke {

// The numbers of a round: scaled down to an L2 norm of at most `clip`, with normal noise of standard deviation noise * clip in each of
// them, drawn from the operating system's generator, and rounded to a grid of the noise: the last bits of a sum of floating-point numbers
// could tell what it was made of (Mironov, CCS 2012). Without noise a number keeps 16 significant bits.
std::vector<double> made_private(const std::vector<float>& numbers, const FederationRecord& federation);

// What such a round costs: rho of zero-concentrated differential privacy (Bun and Steinke, arXiv 1605.02065) for a device that takes part
// or does not, so that the norm changes by at most `clip`: 1 / (2 noise^2). 0 without noise, which promises nothing.
double cost_of_round(const FederationRecord& federation);

bool can_pay(double spent, const FederationRecord& federation);  // for another round

// epsilon of (epsilon, 1e-5) differential privacy that follows from rho (the same paper, proposition 1.3). None without noise.
std::optional<double> epsilon_of(double rho, const FederationRecord& federation);

// So many different numbers below `count`, at random.
std::vector<size_t> drawn_rows(size_t count, size_t most);

}  // namespace bespoke
