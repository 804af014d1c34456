// SPDX-License-Identifier: Apache-2.0
// Examples of a prompt and its answer, or of two answers of which one is better.
#include <algorithm>

#include "error.h"
#include "format/json.h"
#include "format/untrusted_text.h"
#include "text/example_parts.h"
#include "text/examples.h"
#include "text/row_fitting.h"

namespace bespoke {

namespace {

// Of a preference alone: its answers may stand behind a whole chat.
bool has_messages(const Json& example) { return example.contains("chosen") && example["prompt"].is_array(); }

}  // namespace

// A prompt, and the answer that `field` of the example holds; no tokens where the answer has none. Where the model has a chat template
// they are a question and its answer in the chat, since that is how they are asked.
ExampleEncoder::Pair ExampleEncoder::read_pair(const Json& example, const char* field, bool trains_prompt,
                                               const std::string& subject) const {
  const Tokenizer& tokenizer = need_tokenizer(subject);
  const bool is_text = says(example, "as", "text", subject, "a prompt and a completion outside of the chat");
  if (has_messages(example)) need_turns(subject + ".prompt");
  if (turn_encoder_ && !is_text) return read_turn_pair(example, field, trains_prompt, subject);
  Pair pair;
  TokenRow& row = pair.row;
  row.tokens = begin();
  const Json& prompt = example["prompt"];
  take_content(prompt, subject + ".prompt", std::nullopt, row.tokens);
  pair.answer = row.tokens.size();
  row.mask.assign(pair.answer, trains_prompt);
  const bool goes_on = prompt != Json("") && pair.answer > 0;
  take_content(example[field], subject + "." + field, goes_on ? std::optional(row.tokens.back()) : std::nullopt, row.tokens);
  if (row.tokens.size() == pair.answer) return {};
  if (tokenizer.eos()) row.tokens.push_back(*tokenizer.eos());
  row.mask.resize(row.tokens.size(), 1);
  row.mask[0] = 0;
  return pair;
}

// Up to the end of the turn. The answer is always trained; in a chat it is the last one.
ExampleEncoder::Pair ExampleEncoder::read_turn_pair(const Json& example, const char* field, bool trains_prompt,
                                                    const std::string& subject) const {
  const bool is_chat = has_messages(example);
  for (const char* name : {"prompt", field}) {
    if (example[name].is_string() || (is_chat && name != field)) continue;
    throw Error(Kind::Data, subject + "." + name, kind_of(example[name]), "text", "Give it as one string");
  }
  const auto& answer = example[field].get_ref<const std::string&>();
  if (answer.empty()) return {};
  std::vector<Message> messages;
  if (is_chat)
    messages = read_messages(example["prompt"], subject + ".prompt");
  else
    messages.push_back({Place::user, example["prompt"].get<std::string>()});
  messages.push_back({Place::assistant, answer});
  TurnTokens found = turn_encoder_->encode(turns_->render(messages, false, subject), subject);
  const auto begins_answer = [](const TurnPiece& piece) { return piece.begins_answer; };
  const auto last = std::find_if(found.pieces.rbegin(), found.pieces.rend(), begins_answer).base() - 1;
  const auto begins = static_cast<size_t>(last - found.pieces.begin());
  Pair pair;
  for (const size_t number : found.piece_of) {
    const auto& role = found.pieces[number].role;
    pair.row.mask.push_back(role && (trains_prompt || (number >= begins && role == Place::assistant)));
  }
  pair.row.mask[0] = 0;
  const size_t end = trained_end(pair.row.mask);
  pair.row.mask.resize(end);
  pair.row.tokens.assign(found.tokens.begin(), found.tokens.begin() + static_cast<ptrdiff_t>(end));
  pair.answer = found.begin_of(begins);
  return pair;
}

EncodedExample ExampleEncoder::encode_pair(const Pair& pair, size_t prompt) const {
  if (trained(pair.row.mask) == 0) return {};
  return counted(pair.row, with_prompt_of(pair.row, pair.answer, prompt, tokenizer_->bos() == pair.row.tokens[0], max_length_ + 1));
}

size_t ExampleEncoder::prompt_room_of(const Pair& pair) const {
  return prompt_room(pair.answer, pair.row.tokens.size() - pair.answer, max_length_ + 1);
}

// Both answers stand behind the same prompt, as much of it as there is room for before either.
EncodedExample ExampleEncoder::encode_preference(const Json& example, const std::string& subject) const {
  const Pair one = read_pair(example, "chosen", false, subject), other = read_pair(example, "rejected", false, subject);
  const size_t prompt = std::min(prompt_room_of(one), prompt_room_of(other));
  EncodedExample chosen = encode_pair(one, prompt), rejected = encode_pair(other, prompt);
  if (chosen.rows.empty()) return chosen;
  if (rejected.rows.empty() || example["chosen"] == example["rejected"]) {
    throw Error(Kind::Data, subject + ".rejected", rejected.rows.empty() ? "an answer without tokens" : "the answer that was chosen",
                "another answer", "Give the answer that is worse, or leave this example out");
  }
  chosen.rows[0].rejected_tokens = std::move(rejected.rows[0].tokens);
  chosen.rows[0].rejected_mask = std::move(rejected.rows[0].mask);
  chosen.truncated_tokens += rejected.truncated_tokens;
  chosen.truncated_trained_tokens += rejected.truncated_trained_tokens;
  return chosen;
}

}  // namespace bespoke
