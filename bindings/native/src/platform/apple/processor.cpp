// SPDX-License-Identifier: Apache-2.0
#include "platform/processor.h"

namespace bespoke {

bool get_amx_tiles() { return false; }  // of x86, on Linux alone

}  // namespace bespoke
