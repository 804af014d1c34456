// SPDX-License-Identifier: Apache-2.0
// One text for one JSON object, so that the same example has the same id on every device.
#pragma once

#include <string>

namespace bespoke {

// Sorted keys, no spaces, characters as they are, floats as Python's repr writes them: byte for byte what json.dumps of
// Python writes with these settings. DataError for what is no JSON object, a key that is there twice, a number that is not finite.
std::string canonical_json(const std::string& json, const std::string& subject);

}  // namespace bespoke
