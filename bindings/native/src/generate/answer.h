// SPDX-License-Identifier: Apache-2.0
// One answer, token by token: which one is chosen, what of the text can be said, and when it ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "enums.h"
#include "generate/drafts.h"
#include "generate/sampling.h"
#include "generate/stop_texts.h"
#include "text/tokenizer.h"

namespace bespoke {

struct AnswerSettings {
  int64_t max_tokens = 0;  // 0: as many as the context has room for
  Sampling sampling;
  std::vector<std::string> stop_texts;
  bool notes = false;  // whether the nearest notes of the user are put into each prompt
};

void check(const AnswerSettings& settings);  // GenerationError for what is out of its range

// What an answer grew by: a token and the text that it completes. The last piece says why it is the last, and has no token where one
// was chosen that ends answers.
struct AnswerPiece {
  std::string text;  // whole characters; what may be the beginning of a stop text comes later
  std::optional<int64_t> token;
  int64_t tokens = 0;  // of the answer so far
  std::optional<AnswerEnd> stopped_because;
};

struct AnswerLimits {  // of the bundle
  std::vector<int64_t> stop_ids;
  size_t context_length;
};

class Answer {
 public:
  // To `prompt`. `tokenizer` null: pieces have no text.
  Answer(std::vector<int64_t> prompt, const AnswerSettings& settings, const AnswerLimits& limits, const Tokenizer* tokenizer);

  AnswerPiece next(const std::vector<float>& logits);  // of what follows `seen`
  bool ended() const { return ended_; }
  const std::vector<int64_t>& seen() const { return seen_; }                     // the prompt and the answer so far
  std::vector<int64_t> draft(size_t most) { return drafts_.next(seen_, most); }  // at most so many tokens that may follow `seen`
  const std::string& text() const { return text_; }                              // of all pieces
  std::vector<int64_t> tokens() const { return {seen_.begin() + static_cast<ptrdiff_t>(prompt_), seen_.end()}; }

 private:
  const AnswerSettings settings_;
  const AnswerLimits limits_;
  const size_t prompt_;  // tokens
  std::vector<int64_t> seen_;
  Drafts drafts_;
  std::optional<StreamDecoder> decoder_;
  StopTexts stop_texts_;
  std::string text_;
  bool ended_ = false;
};

}  // namespace bespoke
