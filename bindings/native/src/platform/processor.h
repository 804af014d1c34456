// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace bespoke {

bool get_amx_tiles();  // asks the system for the registers of AMX, on x86: false where it does not hand them out

}  // namespace bespoke
