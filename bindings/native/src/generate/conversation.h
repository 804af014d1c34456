// SPDX-License-Identifier: Apache-2.0
// What a session was given and has answered, and the tokens that the model sees of it: always of the whole, as the template and the
// tokenizer make them, so that a second turn has the tokens that it has in training.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/examples.h"

namespace bespoke {

class Conversation {
 public:
  explicit Conversation(const ExampleEncoder& encoder) : encoder_(&encoder) {}

  // With more messages, more of a text or more token ids. GenerationError where it is of another form than before, DataError where it
  // cannot be used.
  Conversation with(const Prompt& more) const;
  // With an answer, or as much of one as was given: its text and its tokens.
  Conversation with_answer(const std::string& text, const std::vector<int64_t>& tokens) const;

  const std::vector<int64_t>& tokens() const { return tokens_; }  // up to where the next answer begins; none before the first `with`

 private:
  const ExampleEncoder* encoder_;
  std::optional<Prompt> all_;
  std::vector<int64_t> tokens_;
};

}  // namespace bespoke
