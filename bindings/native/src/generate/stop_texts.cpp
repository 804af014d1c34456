// SPDX-License-Identifier: Apache-2.0
#include "generate/stop_texts.h"

#include <algorithm>
#include <utility>

namespace bespoke {

std::string StopTexts::take(const std::string& text) {
  held_ += text;
  size_t said = held_.size();
  for (const std::string& stop : texts_) {
    const size_t at = held_.find(stop);
    if (at == std::string::npos) continue;
    said = std::min(said, at);
    found_ = true;
  }
  for (size_t at = 0; at < said && !found_; at++)  // the longest end that is a beginning of one
    for (const std::string& stop : texts_)
      if (stop.compare(0, held_.size() - at, held_, at) == 0) said = std::min(said, at);
  std::string out = held_.substr(0, said);
  held_.erase(0, said);
  return out;
}

std::string StopTexts::rest() { return std::exchange(held_, {}); }

}  // namespace bespoke
