// SPDX-License-Identifier: Apache-2.0
#include "text/examples.h"

#include <algorithm>
#include <set>

#include "error.h"
#include "format/json.h"
#include "format/untrusted_text.h"
#include "text/conversation_rows.h"
#include "text/example_parts.h"
#include "text/row_fitting.h"

namespace bespoke {

namespace {

enum class Shape { messages, pair, preference, text, tokens };

Shape shape_of(const Json& example, const std::string& subject) {
  if (!example.is_object()) {
    throw Error(Kind::Data, subject, kind_of(example),
                "an object with messages, prompt and completion, prompt with chosen and rejected, or text",
                "Give one JSON object per example");
  }
  std::vector<Shape> found;
  std::string names;
  const auto look = [&](Shape shape, const char* name, std::initializer_list<const char*> fields) {
    if (!std::all_of(fields.begin(), fields.end(), [&](const char* field) { return example.contains(field); })) return;
    found.push_back(shape);
    names += std::string(names.empty() ? "" : " and ") + name;
  };
  look(Shape::messages, "messages", {"messages"});
  look(Shape::pair, "prompt_completion", {"prompt", "completion"});
  look(Shape::preference, "preference", {"prompt", "chosen", "rejected"});
  look(Shape::text, "text", {"text"});
  look(Shape::tokens, "tokens", {"tokens"});
  if (found.size() == 1) return found[0];
  if (!found.empty()) {
    throw Error(Kind::Data, subject, "keys of several shapes (" + names + ")", "one of them",
                "Name the one to use with " + setting("format") + ", or remove the others");
  }
  std::string keys;
  size_t shown_keys = 0;
  for (const auto& [key, value] : example.items()) {
    if (shown_keys++ < 12) keys += std::string(keys.empty() ? "" : ", ") + in_quotes(key);
  }
  throw Error(Kind::Data, subject, "the keys " + (keys.empty() ? "none" : keys),
              "'messages', 'prompt' and 'completion', 'prompt', 'chosen' and 'rejected', or 'text'",
              "Rename the keys, or map them: " + setting_as("fields", "{'prompt': 'question', 'completion': 'answer'}",
                                                            R"({"prompt": "question", "completion": "answer"})"));
}

// The keys of which an example of a shape is made.
std::initializer_list<const char*> keys_of(Shape shape) {
  static constexpr auto kMessages = {"messages"}, kText = {"text", "end"}, kTokens = {"tokens", "mask"},
                        kPair = {"prompt", "completion", "as"}, kPreference = {"prompt", "chosen", "rejected", "as"};
  switch (shape) {
    case Shape::messages:
      return kMessages;
    case Shape::pair:
      return kPair;
    case Shape::preference:
      return kPreference;
    case Shape::tokens:
      return kTokens;
    default:
      return kText;
  }
}

TokenRow all_trained(std::vector<int32_t> tokens) {
  std::vector<uint8_t> mask(tokens.size(), 1);
  mask[0] = 0;
  return {std::move(tokens), std::move(mask)};
}

bool is_id(const Json& token, int64_t largest) {
  if (token.is_number_unsigned()) return token.get<uint64_t>() <= static_cast<uint64_t>(largest);
  return token.is_number_integer() && token.get<int64_t>() >= 0 && token.get<int64_t>() <= largest;
}

bool is_bit(const Json& value) { return value.is_boolean() || is_id(value, 1); }

}  // namespace

uint64_t trained(const std::vector<uint8_t>& mask) { return static_cast<uint64_t>(std::count(mask.begin(), mask.end(), 1)); }

EncodedExample with_counts(std::vector<TokenRow> rows) {
  EncodedExample encoded;
  encoded.windows = rows.size();
  for (const TokenRow& row : rows) {
    encoded.tokens += row.tokens.size();
    encoded.trained_tokens += trained(row.mask);
  }
  encoded.rows = std::move(rows);
  return encoded;
}

EncodedExample counted(const TokenRow& whole, TokenRow kept) {
  std::vector<TokenRow> rows;
  rows.push_back(std::move(kept));
  EncodedExample encoded = with_counts(std::move(rows));
  encoded.truncated_tokens = whole.tokens.size() - encoded.tokens;
  encoded.truncated_trained_tokens = trained(whole.mask) - encoded.trained_tokens;
  return encoded;
}

bool says(const Json& example, const char* name, const char* word, const std::string& subject, const char* meaning) {
  const Json value = example.value(name, Json());
  if (value.is_null()) return false;
  if (is_text(value, word)) return true;
  throw Error(Kind::Data, subject + "." + name, shown(value), std::string("'") + word + "', or no such key",
              std::string("Write '") + word + "' for " + meaning);
}

EncodedExample ExampleEncoder::encode(const Json& example, const std::string& subject) const {
  EncodedExample encoded = try_encode(example, subject);
  if (encoded.trained_tokens == 0) throw nothing_to_train(example, subject);
  return encoded;
}

EncodedExample ExampleEncoder::try_encode(const Json& example, const std::string& subject) const {
  EncodedExample encoded;
  const Shape shape = shape_of(example, subject);
  switch (shape) {
    case Shape::messages:
      encoded = encode_messages(example["messages"], subject);
      break;
    case Shape::pair: {
      const Pair pair = read_pair(example, "completion", train_on_ == TrainOn::all, subject);
      encoded = encode_pair(pair, prompt_room_of(pair));
      break;
    }
    case Shape::preference:
      encoded = encode_preference(example, subject);
      break;
    case Shape::tokens:
      encoded = encode_ids(example, subject);
      break;
    case Shape::text: {
      const Tokenizer& tokenizer = need_tokenizer(subject);
      std::vector<int32_t> tokens;
      take_content(example["text"], subject + ".text", std::nullopt, tokens);
      const bool goes_on = says(example, "end", "none", subject, "a text that goes on");
      if (!tokens.empty() && !goes_on && tokenizer.eos()) tokens.push_back(*tokenizer.eos());
      encoded = windows(tokens, tokenizer.bos());
      break;
    }
  }
  encoded.unused_keys = unused_keys(example, keys_of(shape));
  return encoded;
}

Prompt ExampleEncoder::read_prompt(const Json& prompt) const {
  if (prompt.is_string()) return prompt.get<std::string>();
  const bool is_ids = prompt.is_array() && !prompt.empty() &&
                      std::all_of(prompt.begin(), prompt.end(), [](const Json& token) { return token.is_number_integer(); });
  if (is_ids) return ids(prompt, "prompt");
  need_turns("prompt");  // more than how a message is written
  return read_messages(prompt, "prompt");
}

std::vector<int32_t> ExampleEncoder::prompt_tokens(const Prompt& prompt) const {
  if (const auto* ids = std::get_if<std::vector<int32_t>>(&prompt)) return *ids;
  TokenRow row;
  if (const auto* messages = std::get_if<std::vector<Message>>(&prompt)) {
    need_turns("prompt");
    row.tokens = turn_encoder_->encode(turns_->render(*messages, true, "prompt"), "prompt").tokens;
  } else {
    need_tokenizer("prompt");
    row.tokens = begin();
    take_words(std::get<std::string>(prompt), "prompt", std::nullopt, row.tokens);
  }
  return std::move(row.tokens);
}

AnsweredPrompt ExampleEncoder::answered(const Prompt& prompt, const Json& answer, const std::string& subject) const {
  AnsweredPrompt both;
  if (const auto* messages = std::get_if<std::vector<Message>>(&prompt)) {
    if (!answer.is_string()) throw Error(Kind::Data, subject, kind_of(answer), "text", "Give it as one string");
    std::vector<Message> all = *messages;
    all.push_back({Place::assistant, answer.get<std::string>()});
    std::vector<TurnPiece> pieces = turns_->render(all, false, subject);
    const auto is_answer = [](const TurnPiece& piece) { return piece.is_content; };
    const auto content = std::find_if(pieces.rbegin(), pieces.rend(), is_answer).base() - 1;
    const auto begins = std::find_if(pieces.rbegin(), pieces.rend(), [](const TurnPiece& piece) { return piece.begins_answer; }).base() - 1;
    const auto behind = std::find_if(content + 1, pieces.end(), [](const TurnPiece& piece) { return !piece.role; });
    const auto first = static_cast<size_t>(begins - pieces.begin());
    pieces.erase(behind, pieces.end());
    TurnTokens found = turn_encoder_->encode(std::move(pieces), subject);
    both.begin = found.begin_of(first);
    both.tokens = std::move(found.tokens);
    return both;
  }
  both.tokens = prompt_tokens(prompt);
  both.begin = both.tokens.size();
  if (answer.is_array() && std::holds_alternative<std::vector<int32_t>>(prompt)) {
    const std::vector<int32_t> more = ids(answer, subject);
    both.tokens.insert(both.tokens.end(), more.begin(), more.end());
    return both;
  }
  const Tokenizer& tokenizer = need_tokenizer(subject);
  take_content(answer, subject, both.begin ? std::optional(both.tokens.back()) : std::nullopt, both.tokens);
  if (tokenizer.eos()) both.tokens.push_back(*tokenizer.eos());
  return both;
}

std::vector<int32_t> ExampleEncoder::stops() const {
  std::set<int32_t> stops;
  if (!tokenizer_) return {};
  if (tokenizer_->eos()) stops.insert(*tokenizer_->eos());
  std::vector<int32_t> ending;
  if (turns_) tokenizer_->encode(turns_->ending(Place::assistant), TextForm::of_template, std::nullopt, ending);
  const auto control = std::find_if(ending.begin(), ending.end(), [&](int32_t token) { return tokenizer_->is_control(token); });
  if (control != ending.end()) stops.insert(*control);
  return {stops.begin(), stops.end()};
}

std::string ExampleEncoder::stop_text(const Prompt& prompt) const {
  if (!turns_ || !std::holds_alternative<std::vector<Message>>(prompt)) return {};
  std::string ending(turns_->ending(Place::assistant));
  const auto parts = tokenizer_->parts(ending);
  if (std::any_of(parts.begin(), parts.end(), [](const TemplatePart& part) { return part.control.has_value(); })) return {};
  ending.resize(ending.find_last_not_of(" \t\n\v\f\r") + 1);
  return ending;
}

EncodedExample ExampleEncoder::encode_messages(const Json& given, const std::string& subject) const {
  const std::string place = subject + ".messages";
  need_turns(place);
  const std::vector<Message> messages = read_messages(given, place);
  std::vector<bool> trained;
  for (const Message& message : messages) trained.push_back(trains(message));
  const auto encode = [&](const std::vector<Message>& some) { return turn_encoder_->encode(turns_->render(some, false, place), place); };
  // Of an ending alone there are none: it would teach the model to say nothing.
  ConversationRows found =
      conversation_rows(messages, trained, encode, *turns_, tokenizer_->bos(), train_on_ != TrainOn::all, max_length_ + 1);
  EncodedExample encoded = with_counts(std::move(found.rows));
  encoded.truncated_tokens = found.truncated;
  encoded.truncated_trained_tokens = found.truncated_trained;
  return encoded;
}

EncodedExample ExampleEncoder::encode_ids(const Json& example, const std::string& subject) const {
  TokenRow row{ids(example["tokens"], subject + ".tokens"), {}};
  const Json mask = example.value("mask", Json());
  if (mask.is_null()) return windows(row.tokens, std::nullopt);
  if (!mask.is_array() || mask.size() != row.tokens.size() || !std::all_of(mask.begin(), mask.end(), is_bit)) {
    throw Error(Kind::Data, subject + ".mask", mask.is_array() ? std::to_string(mask.size()) + " entries" : kind_of(mask),
                std::to_string(row.tokens.size()) + " times 0 or 1, one per token",
                "Give 1 for each token that is to be trained, or leave the mask out to train all");
  }
  for (const Json& bit : mask) row.mask.push_back(bit == Json(true) || bit == Json(1));
  row.mask[0] = 0;
  if (trained(row.mask) == 0) return {};
  return counted(row, fitted(row, tokenizer_ && tokenizer_->bos() == row.tokens[0], true, max_length_ + 1));
}

// Every token is predicted exactly once, the first only where bos stands before it; elsewhere a window begins with the last token of
// the one before.
EncodedExample ExampleEncoder::windows(const std::vector<int32_t>& tokens, std::optional<int32_t> bos) const {
  std::vector<TokenRow> rows;
  const size_t overlap = bos ? 0 : 1;
  for (size_t start = 0; start + overlap < tokens.size(); start += max_length_) {
    const size_t end = std::min(tokens.size(), start + max_length_ + overlap);
    std::vector<int32_t> window;
    window.reserve(end - start + 1);
    if (bos) window.push_back(*bos);
    window.insert(window.end(), tokens.begin() + static_cast<ptrdiff_t>(start), tokens.begin() + static_cast<ptrdiff_t>(end));
    rows.push_back(all_trained(std::move(window)));
  }
  return with_counts(std::move(rows));
}

void ExampleEncoder::take_content(const Json& text, const std::string& subject, std::optional<int32_t> previous,
                                  std::vector<int32_t>& tokens) const {
  if (!text.is_string()) throw Error(Kind::Data, subject, kind_of(text), "text", "Give it as one string");
  take_words(text.get_ref<const std::string&>(), subject, previous, tokens);
}

void ExampleEncoder::take_words(const std::string& text, const std::string& subject, std::optional<int32_t> previous,
                                std::vector<int32_t>& tokens) const {
  try {
    tokenizer_->encode(text, TextForm::content, previous, tokens);
  } catch (const Error& error) {
    throw Error(error.kind, subject, error.got, error.expected, error.next_step);
  }
}

std::vector<int32_t> ExampleEncoder::ids(const Json& tokens, const std::string& subject) const {
  const int64_t largest = vocabulary_ ? vocabulary_ - 1 : 0x7fffffff;
  const auto wrong = [&](const std::string& got) {
    throw Error(Kind::Data, subject, got, "a list of token ids from 0 to " + std::to_string(largest),
                "Tokenize with the tokenizer of the bundle's own model");
  };
  if (!tokens.is_array()) wrong(shown(tokens));
  if (tokens.empty()) wrong("no tokens");
  std::vector<int32_t> found;
  for (const Json& token : tokens) {
    if (!is_id(token, largest)) wrong(shown(token));
    found.push_back(token.get<int32_t>());
  }
  return found;
}

std::vector<int32_t> ExampleEncoder::begin() const {
  return tokenizer_->bos() ? std::vector<int32_t>{*tokenizer_->bos()} : std::vector<int32_t>();
}

bool ExampleEncoder::trains(const Message& message) const {
  const Place role = train_on_ == TrainOn::user ? Place::user : Place::assistant;
  return !message.is_context && (train_on_ == TrainOn::all || message.role == role);
}

const Tokenizer& ExampleEncoder::need_tokenizer(const std::string& subject) const {
  if (tokenizer_) return *tokenizer_;
  throw Error(Kind::Data, subject, "text, but this bundle takes token ids only", R"({"tokens": [...], "mask": [...]})",
              "Tokenize with the model's own tokenizer and give the ids");
}

void ExampleEncoder::need_turns(const std::string& subject) const {
  need_tokenizer(subject);
  if (turns_) return;
  throw Error(Kind::Data, subject, "messages, for a model without a chat template", "text, or prompt and completion",
              R"(Give {"prompt": ..., "completion": ...} or {"text": ...})");
}

Error ExampleEncoder::nothing_to_train(const Json& example, const std::string& subject) const {
  if (!example.contains("messages")) {
    return Error(Kind::Data, subject, "nothing to train on: empty, a single token, or every token masked",
                 "at least one token that is trained on", "Leave this example out");
  }
  std::set<std::string> roles;
  bool has_untrained = false;
  for (const Message& message : read_messages(example["messages"], subject)) {
    roles.insert(name_of(message.role));
    has_untrained = has_untrained || (message.is_context && !message.content.empty() && trains({message.role, ""}));
  }
  std::string got;
  for (const std::string& role : roles) got += std::string(got.empty() ? "" : " and ") + role;
  const std::string wanted = name_of(train_on_);
  const Wording expected = "words of the " + wanted + ", which " + setting("train_on", wanted) + " trains";
  if (has_untrained) {
    return Error(Kind::Data, subject, "weight 0 for every message with words that would be trained on", expected,
                 "Give one of them weight 1, or leave this example out");
  }
  const bool missing = train_on_ != TrainOn::all && !roles.count(wanted);
  const std::string other = *roles.begin();
  return Error(Kind::Data, subject, "messages of " + got + (missing ? "" : ", without words"), expected,
               missing && (other == "assistant" || other == "user")
                   ? "Add a message of the " + wanted + ", or build with " + setting("train_on", other) + " or 'all'"
                   : Wording("Leave this example out"));
}

}  // namespace bespoke
