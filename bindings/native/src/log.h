// SPDX-License-Identifier: Apache-2.0
// Lines that parts of the library write for developers, on their way to the log of the app.
#pragma once

#include "bespoke_base.h"

namespace bespoke {

// Whether the app has a log, which has taken the line then.
bool write_to_log(bespoke_log_level level, const char* text);

}  // namespace bespoke
