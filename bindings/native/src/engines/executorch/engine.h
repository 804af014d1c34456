// SPDX-License-Identifier: Apache-2.0
// ExecuTorch behind the engine table of bespoke.h.
#pragma once

#include "bespoke.h"

namespace bespoke {

// The table of a new engine, ended by its `destroy`. All engines of a process share ExecuTorch's thread pool: the first sets its
// `threads`, 0 being as many as are of use (platform/cores.h); those that come while another is there share them. ConfigError where
// they ask for another number.
bespoke_engine executorch_engine(int threads);

}  // namespace bespoke
