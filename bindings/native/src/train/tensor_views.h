// SPDX-License-Identifier: Apache-2.0
// Views for the machine and for the store of each other's tensors.
#pragma once

#include <vector>

#include "exec/steps.h"
#include "state/records.h"

namespace bespoke {

TensorSource source_of(const MappedTensors& tensors);
std::vector<StateTensor> state_tensors(const std::vector<NamedTensor>& tensors);

}  // namespace bespoke
