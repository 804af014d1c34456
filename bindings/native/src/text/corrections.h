// SPDX-License-Identifier: Apache-2.0
// From an answer that the user corrected to an example: a pair of the better answer and of the one that was given.
#pragma once

#include <string>

#include "text/examples.h"

namespace bespoke {

// `answer`: the messages of a chat, the last of which is the answer. DataError where it is of another form.
std::string correction_json(const Prompt& answer, const std::string& better);

}  // namespace bespoke
