// SPDX-License-Identifier: Apache-2.0
// From an example to rows of tokens with an explicit loss mask, once, when it is added (tests/support/example_encoder.py).
//
// Token i + 1 is predicted from tokens 0 .. i, so a row of n tokens has n - 1 positions; mask[i] says whether token i is trained on;
// mask[0] is 0. Which tokens are: of messages the contents of the roles that `train_on` names, each with the ending of its turn, but of
// none with weight 0; of a prompt and its completion the completion and what ends it, with "all" the prompt too; of a text all and eos
// behind it, but for one with "end": "none"; of tokens without a mask all, each exactly once. Of a preference, a prompt with a chosen
// and a rejected answer, each answer and what ends it: a row has the chosen one, which every method trains on, and with it the rejected
// one. Where there are turns, a prompt and its answer are those of a chat, but for "as": "text".
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "enums.h"
#include "error.h"
#include "token_row.h"
#include "text/messages.h"
#include "text/tokenizer.h"
#include "text/turn_tokens.h"
#include "text/turns.h"

namespace bespoke {

// Rows of 2 to max_length + 1 tokens. `tokens` and `trained_tokens` count those in the rows, rejected ones apart; truncated ones found
// no room in them, or in the rejected ones. `windows`: how many rows, of a text or a conversation that was split. `unused_keys`: how often
// it and its messages have a key that says nothing here.
struct EncodedExample {
  std::vector<TokenRow> rows;
  uint64_t tokens = 0, trained_tokens = 0, truncated_tokens = 0, truncated_trained_tokens = 0, windows = 0;
  std::map<std::string, uint64_t> unused_keys = {};
};

using Prompt = std::variant<std::vector<Message>, std::string, std::vector<int32_t>>;  // to answer: messages, a text or token ids

struct AnsweredPrompt {  // the tokens that training has of both, with what ends the answer; it begins at tokens[begin]
  std::vector<int32_t> tokens;
  size_t begin = 0;
};

class ExampleEncoder {
 public:
  // The tokenizer's markers are protected already (protect_markers), where there are turns.
  // `tokenizer` null: the bundle takes token ids only. `turns` null: the model has no chat template. `max_length`: positions of a row.
  ExampleEncoder(const Tokenizer* tokenizer, const Turns* turns, TrainOn train_on, size_t max_length, int32_t vocabulary)
      : tokenizer_(tokenizer), turns_(turns), train_on_(train_on), max_length_(max_length), vocabulary_(vocabulary) {
    if (tokenizer && turns) turn_encoder_.emplace(*tokenizer, *turns);
  }

  // DataError, naming `subject`, where the example cannot be used or nothing of it would be trained.
  EncodedExample encode(const nlohmann::json& example, const std::string& subject) const;

  // The same, but an example of which nothing would be trained gives no rows; then the error that says why.
  EncodedExample try_encode(const nlohmann::json& example, const std::string& subject) const;
  Error nothing_to_train(const nlohmann::json& example, const std::string& subject) const;

  Prompt read_prompt(const nlohmann::json& prompt) const;  // DataError
  // Tokens to answer: of messages with the header of the answer, of a text with bos where there is one, or token ids as they are.
  std::vector<int32_t> prompt_tokens(const Prompt& prompt) const;

  // DataError, naming `subject`, for an answer that is no text, and, to token ids, no list of them either.
  AnsweredPrompt answered(const Prompt& prompt, const nlohmann::json& answer, const std::string& subject) const;

  // Tokens that end an answer: eos, and the token that ends the assistant's turn.
  std::vector<int32_t> stops() const;

  // The words before which an answer to `prompt` ends: those that end the turns of a chat template where no token does. Empty: none.
  std::string stop_text(const Prompt& prompt) const;

 private:
  struct Pair {  // an answer begins at row.tokens[answer]
    TokenRow row;
    size_t answer = 0;
  };

  EncodedExample encode_messages(const nlohmann::json& messages, const std::string& subject) const;
  EncodedExample encode_preference(const nlohmann::json& example, const std::string& subject) const;
  EncodedExample encode_ids(const nlohmann::json& example, const std::string& subject) const;
  EncodedExample encode_pair(const Pair& pair, size_t prompt) const;
  EncodedExample windows(const std::vector<int32_t>& tokens, std::optional<int32_t> bos) const;
  Pair read_pair(const nlohmann::json& example, const char* field, bool trains_prompt, const std::string& subject) const;
  Pair read_turn_pair(const nlohmann::json& example, const char* field, bool trains_prompt, const std::string& subject) const;
  size_t prompt_room_of(const Pair& pair) const;
  void take_content(const nlohmann::json& text, const std::string& subject, std::optional<int32_t> previous,
                    std::vector<int32_t>& tokens) const;
  void take_words(const std::string& text, const std::string& subject, std::optional<int32_t> previous, std::vector<int32_t>& tokens) const;
  std::vector<int32_t> ids(const nlohmann::json& tokens, const std::string& subject) const;
  std::vector<int32_t> begin() const;
  bool trains(const Message& message) const;
  const Tokenizer& need_tokenizer(const std::string& subject) const;
  void need_turns(const std::string& subject) const;

  const Tokenizer* tokenizer_;
  const Turns* turns_;
  std::optional<TurnEncoder> turn_encoder_;
  TrainOn train_on_;
  size_t max_length_;
  int32_t vocabulary_;  // bounds given ids; 0: only their type does
};

}  // namespace bespoke
