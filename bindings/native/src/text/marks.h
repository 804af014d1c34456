// SPDX-License-Identifier: Apache-2.0
// The words of which a chat template makes its turns, where they are no tokens of their own: "[INST]", "### User:". A message that holds
// such a mark is tokenized with the mark spelled, character by character, so that its tokens are never those of a turn
// (sdk/bespoke/data/marks.py). Texts without a mark keep their tokens.
#pragma once

#include <string>
#include <vector>

#include "text/tokenizer.h"
#include "text/turns.h"

namespace bespoke {

class Marks {
 public:
  // The tokenizer's markers are protected already (protect_markers).
  Marks(const Tokenizer& tokenizer, const Turns& turns);

  // `content` in the parts that are tokenized one by one, the whole where it holds no mark. DataError, naming `subject`, for a mark whose
  // own tokens are its characters, so that spelling changes nothing.
  std::vector<std::string> parts(const std::string& content, const std::string& subject) const;

 private:
  const Tokenizer* tokenizer_;
  std::vector<std::string> marks_;  // ascending
  std::vector<std::string> known_;  // of each mark: what the vocabulary has tokens for
  std::vector<bool> spelled_;       // of each mark: it has tokens of several characters, which spelling takes apart
};

}  // namespace bespoke
