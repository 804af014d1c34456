// SPDX-License-Identifier: Apache-2.0
// JSON objects on the standard streams, one a line.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "bespoke.h"

namespace bespoke {

constexpr size_t kMaxLineBytes = 64 << 20;  // a request may hold examples, a prompt a book; as in sdk/bespoke/core/process.py

struct Line {
  std::string text;
  bool is_too_long = false;  // it was read to its end, and nothing of it is kept
};

// Lines of standard input, without stdio, whose locks would be waited for at the end of the process.
class Lines {
 public:
  std::optional<Line> next(size_t max_bytes = kMaxLineBytes);  // none: no more

 private:
  std::string text_;
  size_t searched_ = 0;  // bytes of it that hold no end of a line
  bool ended_ = false;
};

void say(const nlohmann::json& event);          // on standard output
nlohmann::json event_of(bespoke_error* error);  // and frees it

inline bespoke_text text_of(const std::string& text) { return {text.data(), text.size()}; }

}  // namespace bespoke
