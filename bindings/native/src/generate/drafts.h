// SPDX-License-Identifier: Apache-2.0
// Guesses of what follows in a text, from what followed the same tokens before. The rule stands in sdk/bespoke/rules/drafts.py.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace bespoke {

class Drafts {
 public:
  // At most `most` tokens that may follow `seen`, which is what it was in the last call and more. None where nothing repeats, and for a
  // while after guesses that were wrong.
  std::vector<int64_t> next(const std::vector<int64_t>& seen, size_t most);

 private:
  static constexpr size_t kEnding = 3, kLongestPause = 32;  // tokens

  void judge(const std::vector<int64_t>& seen);
  void read(const std::vector<int64_t>& seen);

  std::map<std::array<int64_t, kEnding>, size_t> places_;  // the place behind the last one of each ending
  size_t earlier_ = 0;                                     // behind the one before, of what `seen` ends with; 0: there is none
  size_t read_ = 0;                                        // tokens that `places_` knows
  std::vector<int64_t> draft_;                             // given last, of what follows the first `begin_` tokens
  size_t begin_ = 0, pause_ = 0, resume_ = 0;              // tokens: no draft before there are `resume_`
};

}  // namespace bespoke
