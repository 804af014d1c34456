// SPDX-License-Identifier: Apache-2.0
#include "model/bundle_text.h"

#include <algorithm>

#include "format/hash.h"
#include "format/json.h"

namespace bespoke {

namespace {

// Raised when an example becomes other rows than before, by the same files.
constexpr const char* kRowRules = "2";

// Of what one call may give.
constexpr size_t kMostBytes = size_t{64} << 20, kMostPromptBytes = size_t{16} << 20, kMostLevels = 100, kMostItems = 50'000'000;

}  // namespace

EncodedExample BundleText::encode(const std::string& json, const std::string& subject) {
  return encoder().encode(Json::parse(json, nullptr, false), subject);
}

std::vector<EncodedExample> BundleText::encode_all(const std::string& json) {
  const JsonRules rules = {"examples", Kind::Data, "Give them as a list of JSON objects", kMostBytes, kMostLevels, kMostItems};
  const OwnedJson owned = parse_json(bytes_of(json), rules);
  const Json& examples = *owned;
  if (!examples.is_array()) throw Error(Kind::Data, setting("examples"), kind_of(examples), "a list of examples", "Give them as a list");
  std::vector<EncodedExample> encoded;
  for (const Json& example : examples) encoded.push_back(encoder().encode(example, "example " + std::to_string(encoded.size() + 1)));
  return encoded;
}

Prompt BundleText::read_prompt(const std::string& json) {
  const JsonRules rules = {"prompt", Kind::Data, "Give messages, a text or token ids as JSON", kMostPromptBytes, kMostLevels, kMostItems};
  const OwnedJson prompt = parse_json(bytes_of(json), rules);
  return encoder().read_prompt(*prompt);
}

const Tokenizer* BundleText::tokenizer() {
  encoder();  // which makes it
  const MutexLock alone(making_);
  return tokenizer_.get();
}

std::string BundleText::rules() const {
  const Manifest& manifest = bundle_.manifest();
  const auto sum_of = [&](const std::optional<std::string>& name) { return name ? manifest.files.at(*name).sha256 : "none"; };
  const auto& lengths = manifest.sequence_lengths;
  const std::string tokens = sum_of(manifest.text.tokenizer_bin) + " " + sum_of(manifest.text.turns);
  const std::string rows = std::string(kRowRules) + " " + std::to_string(static_cast<int>(manifest.text.train_on)) + " " +
                           std::to_string(*std::max_element(lengths.begin(), lengths.end())) + " " +
                           std::to_string(manifest.text.vocab_size);
  const auto half = [](const std::string& text) { return sha256_hex(bytes_of(text)).substr(0, 32); };
  return half(tokens) + half(rows);
}

const ExampleEncoder& BundleText::encoder() {
  const MutexLock alone(making_);
  if (encoder_) return *encoder_;
  const Manifest& manifest = bundle_.manifest();
  const TextRecord& text = manifest.text;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Turns> turns;
  if (text.tokenizer_bin) tokenizer = std::make_unique<Tokenizer>(bundle_.file(*text.tokenizer_bin), *text.tokenizer_bin);
  if (text.turns) turns = std::make_unique<Turns>(bundle_.file(*text.turns), *text.turns);
  if (tokenizer && turns) protect_markers(*tokenizer, *turns);
  const auto& lengths = manifest.sequence_lengths;
  tokenizer_ = std::move(tokenizer);
  turns_ = std::move(turns);
  encoder_ = std::make_unique<ExampleEncoder>(tokenizer_.get(), turns_.get(), text.train_on,
                                              static_cast<size_t>(*std::max_element(lengths.begin(), lengths.end())),
                                              static_cast<int32_t>(text.vocab_size));
  return *encoder_;
}

}  // namespace bespoke
