// SPDX-License-Identifier: Apache-2.0
// ExecuTorch behind the engine table of bespoke.h.
#pragma once

#include "bespoke.h"

namespace bespoke {

// The table of a new engine, ended by its `destroy`. `threads` sets ExecuTorch's thread pool, which all engines of a process
// share; 0 leaves it as it is.
bespoke_engine executorch_engine(int threads);

}  // namespace bespoke
