// SPDX-License-Identifier: Apache-2.0
// A conversation to tokens, as the model's own tokenizer has them of the template's whole text: what stands between two control tokens is
// tokenized as one text, contents with the glue around them. Two borders are borders of tokens all the same. Where an answer begins, since
// a prompt ends there and the model's own tokens follow. And within the marks of turns that a message holds (text/marks.h). In a content no
// control token is recognised.
#pragma once

#include <string>
#include <vector>

#include "text/marks.h"
#include "text/tokenizer.h"
#include "text/turns.h"

namespace bespoke {

// `piece_of`: for each token which of `pieces` it belongs to, ascending; the content where it reaches into one, else the first.
struct TurnTokens {
  std::vector<TurnPiece> pieces;
  std::vector<int32_t> tokens;
  std::vector<size_t> piece_of;

  size_t begin_of(size_t piece) const;  // its first token
};

class TurnEncoder {
 public:
  TurnEncoder(const Tokenizer& tokenizer, const Turns& turns) : tokenizer_(&tokenizer), marks_(tokenizer, turns) {}

  TurnTokens encode(std::vector<TurnPiece> pieces, const std::string& subject) const;  // DataError

 private:
  const Tokenizer* tokenizer_;
  Marks marks_;
};

}  // namespace bespoke
