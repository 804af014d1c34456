// SPDX-License-Identifier: Apache-2.0
#include "generate/answer.h"

#include <algorithm>

#include "error.h"

namespace bespoke {

void check(const AnswerSettings& settings) {
  check(settings.sampling);
  if (settings.max_tokens < 0)
    throw Error(Kind::Generation, setting("max_tokens"), std::to_string(settings.max_tokens),
                "1 or more, or 0 for what the context has room for", "Change " + setting("max_tokens"));
  for (const std::string& text : settings.stop_texts)
    if (text.empty())
      throw Error(Kind::Generation, setting("stop_texts"), "an empty text", "texts of at least one character", "Leave it out");
}

Answer::Answer(std::vector<int64_t> prompt, const AnswerSettings& settings, const AnswerLimits& limits, const Tokenizer* tokenizer)
    : settings_(settings), limits_(limits), prompt_(prompt.size()), seen_(std::move(prompt)), stop_texts_(settings.stop_texts) {
  if (tokenizer) decoder_.emplace(*tokenizer, false);
}

AnswerPiece Answer::next(const std::vector<float>& logits) {
  AnswerPiece piece;
  const int64_t token = choose_token(logits, settings_.sampling, static_cast<uint32_t>(seen_.size()));
  const bool stops = std::find(limits_.stop_ids.begin(), limits_.stop_ids.end(), token) != limits_.stop_ids.end();
  if (!stops) {
    seen_.push_back(token);
    piece.token = token;
    if (decoder_) piece.text = stop_texts_.take(decoder_->next(static_cast<int32_t>(token)));
  }
  piece.tokens = static_cast<int64_t>(seen_.size() - prompt_);
  if (stops)
    piece.stopped_because = AnswerEnd::stop_token;
  else if (stop_texts_.found())
    piece.stopped_because = AnswerEnd::stop_text;
  else if (piece.tokens == settings_.max_tokens)
    piece.stopped_because = AnswerEnd::max_tokens;
  else if (seen_.size() > limits_.context_length)
    piece.stopped_because = AnswerEnd::context_full;
  ended_ = piece.stopped_because.has_value();
  if (ended_ && decoder_ && !stop_texts_.found()) {
    piece.text += stop_texts_.take(decoder_->finish());
    if (!stop_texts_.found()) piece.text += stop_texts_.rest();
  }
  text_ += piece.text;
  return piece;
}

}  // namespace bespoke
