// SPDX-License-Identifier: Apache-2.0
// The messages of an example or a prompt, as JSON has them (sdk/bespoke/data/messages.py). A content is a text, or a list of parts of type
// text, which are joined with nothing between them, as chat templates do that take parts. `weight` 0 makes a message context: it is read
// and not trained on. `developer` is OpenAI's newer name for `system`.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/turns.h"

namespace bespoke {

// DataError, naming the message, where one is not {"role": ..., "content": ...}.
std::vector<Message> read_messages(const nlohmann::json& messages, const std::string& subject);

// How often the example, its messages and their parts have a key that is not `used`: the most frequent by name, the others together as
// "...". The messages were read.
std::map<std::string, uint64_t> unused_keys(const nlohmann::json& example, std::initializer_list<const char*> used);

}  // namespace bespoke
