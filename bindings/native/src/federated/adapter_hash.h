// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "exec/steps.h"

namespace bespoke {

// By which a server and its devices compare adapters: the sha256 of the numbers of all pieces that are trained, float32 in little-endian
// order, piece after piece in the order of their names.
std::string adapter_hash(std::vector<NamedTensor> adapter);

}  // namespace bespoke
