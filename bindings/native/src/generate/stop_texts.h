// SPDX-License-Identifier: Apache-2.0
// Texts that end an answer and are no part of it. What may be the beginning of one is held back until more is known.
#pragma once

#include <string>
#include <vector>

namespace bespoke {

class StopTexts {
 public:
  explicit StopTexts(std::vector<std::string> texts) : texts_(std::move(texts)) {}  // none of them empty

  std::string take(const std::string& text);  // what can be said, now that the answer has grown by `text`
  bool found() const { return found_; }       // one of them stands behind what was said: the answer has ended
  std::string rest();                         // what was held back, where the answer ends otherwise

 private:
  const std::vector<std::string> texts_;
  std::string held_;
  bool found_ = false;
};

}  // namespace bespoke
