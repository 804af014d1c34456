// SPDX-License-Identifier: Apache-2.0
// The order in which the `tokenizers` package does it: added tokens that stand for the text as it comes; in what is between them the
// normalizer and the added tokens that stand for normalized text; in what is between those the pre-tokenizer and the merges.
#include "text/tokenizer.h"

#include <algorithm>

#include "error.h"
#include "format/untrusted_text.h"
#include "text/merges.h"
#include "text/nfc.h"
#include "format/utf8.h"
#include "text/words.h"

namespace bespoke {

namespace {

bool holds(const std::vector<int32_t>& ascending, int32_t value) { return std::binary_search(ascending.begin(), ascending.end(), value); }

void insert(std::vector<int32_t>& ascending, int32_t value) {
  const auto place = std::lower_bound(ascending.begin(), ascending.end(), value);
  if (place == ascending.end() || *place != value) ascending.insert(place, value);
}

std::string with_space_signs(std::string_view text) {
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  for (const char c : text) {
    if (c == ' ')
      out += kSpaceSign;
    else
      out += c;
  }
  return out;
}

bool begins_with(std::string_view text, std::string_view beginning) { return text.substr(0, beginning.size()) == beginning; }

void check_utf8(std::string_view text) {
  const size_t bad = first_bad_utf8(text);
  if (bad == std::string_view::npos) return;
  throw Error(Kind::Data, "a text", "bytes that are no UTF-8, from byte " + std::to_string(bad) + " on", "Unicode text",
              "Give the text as UTF-8");
}

}  // namespace

// One call of `encode`.
class Tokenizer::Encoding {
 public:
  Encoding(const Tokenizer& tokenizer, TextForm form, std::vector<int32_t>& tokens, std::vector<size_t>* ends)
      : tokenizer_(tokenizer), file_(tokenizer.file_), form_(form), tokens_(tokens), ends_(ends) {}

  // `continued`: the text goes on where a stretch ended.
  void take(std::string_view text, bool continued) {
    for (size_t at = 0; at < text.size();) {
      const Found found = tokenizer_.next_added(text, at, false, form_);
      if (found.begin > at) take_stretch(text.substr(at, found.begin - at), at == 0, continued && at == 0);
      if (found.begin < found.end) put(found.id);
      at = found.end;
    }
  }

 private:
  void take_stretch(std::string_view stretch, bool is_first, bool continued) {
    std::string spaced, composed;
    if (file_.prefix == TokenizerFile::kStretch && !continued) {
      spaced = kSpaceSign;
      spaced += stretch;
      stretch = spaced;
      added_space_ = true;
    }
    if (file_.replaces_spaces) stretch = spaced = with_space_signs(stretch);
    if (file_.nfc) stretch = to_nfc(file_, stretch, composed);
    for (size_t at = 0; at < stretch.size();) {
      const Found found = tokenizer_.next_added(stretch, at, true, form_);
      if (found.begin > at) take_part(stretch.substr(at, found.begin - at), is_first && at == 0, continued && at == 0);
      if (found.begin < found.end) put(found.id);
      at = found.end;
    }
  }

  void take_part(std::string_view part, bool is_first, bool continued) {
    std::string spaced;
    const bool sentencepiece = file_.pattern == TokenizerFile::kSentencepiece;
    if (sentencepiece && !file_.replaces_spaces) part = spaced = with_space_signs(part);
    const bool prefixed = file_.prefix == TokenizerFile::kBareStretch || (file_.prefix == TokenizerFile::kBareText && is_first);
    const std::string_view space = sentencepiece ? kSpaceSign : std::string_view(" ");
    if (prefixed && !continued && !begins_with(part, space)) {
      spaced = std::string(space).append(part);
      part = spaced;
      added_space_ = true;
    }
    while (!part.empty()) {
      std::string_view chunk = part.substr(0, file_.single_digits ? size_to_digit(file_, part) : part.size());
      part.remove_prefix(chunk.size());
      while (!chunk.empty()) {
        const std::string_view word = chunk.substr(0, word_size(file_, chunk));
        sentencepiece ? take_characters(word) : take_bytes(word);
        chunk.remove_prefix(word.size());
      }
    }
  }

  void take_bytes(std::string_view word) {
    if (file_.whole_words) {
      const uint32_t id = file_.word_token(word);
      if (id != kNoToken) return put(id);
    }
    for (const char byte : word) {
      const uint32_t id = file_.byte_token(static_cast<uint8_t>(byte));
      id == kNoToken ? add_unknown(1) : add_known(id);
    }
    put_merged();
  }

  void take_characters(std::string_view word) {
    for (size_t at = 0; at < word.size();) {
      const Utf8Character character = character_at(word, at);
      const std::string_view bytes = word.substr(at, character.size);
      const uint32_t id = file_.character_token(character.code);
      if (id != kNoToken)
        add_known(id);
      else if (tokenizer_.has_all_bytes(bytes))
        add_bytes(bytes);
      else
        add_unknown(character.size);
      at += character.size;
    }
    put_merged();
  }

  void add_known(uint32_t id) {
    end_unknown();
    symbols_.push_back(id);
  }

  // The `tokenizers` package puts an unknown token that stands before these bytes behind them.
  void add_bytes(std::string_view bytes) {
    for (const char byte : bytes) symbols_.push_back(file_.byte_token(static_cast<uint8_t>(byte)));
  }

  void add_unknown(size_t bytes) {
    if (file_.unknown == kNoToken) return;
    if (!file_.fuses_unknown) end_unknown();
    unknown_bytes_ += bytes;
  }

  void end_unknown() {
    if (unknown_bytes_ == 0) return;
    symbols_.push_back(file_.unknown);
    unknown_sizes_.push_back(unknown_bytes_);
    unknown_bytes_ = 0;
  }

  void put_merged() {
    end_unknown();
    merge_symbols(file_, symbols_);
    size_t unknown = 0;  // no merge takes part in it: as many as there were
    for (const uint32_t id : symbols_) {
      const bool is_unknown = id == file_.unknown && unknown < unknown_sizes_.size();
      put(id, is_unknown ? unknown_sizes_[unknown++] : 0);
    }
    symbols_.clear();
    unknown_sizes_.clear();
  }

  void put(uint32_t id, size_t unknown_bytes = 0) {
    tokens_.push_back(static_cast<int32_t>(id));
    if (!ends_) return;
    const size_t size = unknown_bytes ? unknown_bytes : tokenizer_.known_size(id);
    end_ += size - (added_space_ && size ? 1 : 0);  // the space is the first byte of its token
    added_space_ = false;
    ends_->push_back(end_);
  }

  const Tokenizer& tokenizer_;
  const TokenizerFile& file_;
  const TextForm form_;
  std::vector<int32_t>& tokens_;
  std::vector<size_t>* const ends_;
  size_t end_ = 0;
  bool added_space_ = false;  // before the text of the next token
  std::vector<uint32_t> symbols_;
  size_t unknown_bytes_ = 0;           // of an unknown token that is still to be put
  std::vector<size_t> unknown_sizes_;  // of those among the symbols
};

Tokenizer::Tokenizer(Bytes file, const std::string& subject) : file_(file, subject), protected_(file_.added()) {
  for (size_t i = 0; i < file_.controls(); i++) control_ids_.push_back(static_cast<int32_t>(file_.control(i)));
  for (size_t i = 0; i < file_.added(); i++) {
    const AddedToken token = file_.added(i);
    const auto id = static_cast<int32_t>(token.id);
    first_bytes_[i >= file_.raw_added()][static_cast<uint8_t>(token.sought[0])] = true;
    if (!token.content.empty()) spelled_first_bytes_[static_cast<uint8_t>(token.content[0])] = true;
    added_ids_.push_back(id);
    protected_[i] = token.is_protected;
    if (token.is_protected) skipped_ids_.push_back(id);
  }
  std::sort(added_ids_.begin(), added_ids_.end());
  std::sort(skipped_ids_.begin(), skipped_ids_.end());
}

size_t Tokenizer::added_at(std::string_view text, size_t at) const {
  size_t longest = 0, index = file_.added();
  if (!spelled_first_bytes_[static_cast<uint8_t>(text[at])]) return index;
  for (size_t i = 0; i < file_.added(); i++) {
    const std::string_view content = file_.added(i).content;
    if (content.size() > longest && begins_with(text.substr(at), content)) {
      longest = content.size();
      index = i;
    }
  }
  return index;
}

void Tokenizer::protect(std::string_view template_text) {
  for (size_t at = 0; at < template_text.size();) {
    const size_t index = added_at(template_text, at);
    if (index == file_.added()) {
      at++;
      continue;
    }
    const AddedToken token = file_.added(index);
    at += token.content.size();
    if (token.content.find_first_not_of(" \t\n\v\f\r") == std::string_view::npos) continue;  // white space carries no structure
    protected_[index] = true;
    insert(control_ids_, static_cast<int32_t>(token.id));
    insert(skipped_ids_, static_cast<int32_t>(token.id));
  }
}

std::vector<TemplatePart> Tokenizer::parts(std::string_view template_text) const {
  std::vector<TemplatePart> parts;
  size_t begin = 0;
  for (size_t at = 0; at < template_text.size();) {
    const size_t index = added_at(template_text, at);
    if (index == file_.added()) {
      at++;
      continue;
    }
    const AddedToken token = file_.added(index);
    if (protected_[index]) {
      parts.push_back({template_text.substr(begin, at - begin), static_cast<int32_t>(token.id)});
      begin = at + token.content.size();
    }
    at += token.content.size();
  }
  parts.push_back({template_text.substr(begin), std::nullopt});
  return parts;
}

std::string Tokenizer::canonical(std::string_view content) const {
  check_utf8(content);
  std::string kept;
  if (file_.nfc) content = to_nfc(file_, content, kept);
  if (file_.pattern != TokenizerFile::kSentencepiece) return std::string(content);
  std::string text;
  text.reserve(content.size());
  for (size_t at = 0; at < content.size();) {
    const bool space = begins_with(content.substr(at), kSpaceSign);
    text += space ? ' ' : content[at];
    at += space ? kSpaceSign.size() : 1;
  }
  return text;
}

size_t Tokenizer::measured(std::string_view content) const {
  const std::string text = canonical(content);
  return drops_bytes() ? known_part(text).size() : text.size();
}

std::string Tokenizer::known_part(std::string_view canonical, std::vector<size_t>* places) const {
  if (!file_.lacks_bytes) return std::string(canonical);
  std::string known;
  const bool sentencepiece = file_.pattern == TokenizerFile::kSentencepiece;
  for (size_t at = 0; at < canonical.size();) {
    const size_t size = sentencepiece ? character_at(canonical, at).size : 1;
    const std::string_view part = canonical.substr(at, size);
    if (sentencepiece ? is_known_character(part) : has_all_bytes(part)) {
      known += part;
      for (size_t i = 0; places && i < size; i++) places->push_back(at + i);
    }
    at += size;
  }
  return known;
}

bool Tokenizer::has_all_bytes(std::string_view bytes) const {
  return std::all_of(bytes.begin(), bytes.end(), [&](char byte) { return file_.byte_token(static_cast<uint8_t>(byte)) != kNoToken; });
}

bool Tokenizer::is_known_character(std::string_view character) const {
  const std::string_view sign = character == " " ? kSpaceSign : character;
  return file_.character_token(character_at(sign, 0).code) != kNoToken || has_all_bytes(sign);
}

size_t Tokenizer::known_size(uint32_t id) const {
  const std::string_view bytes = file_.token(id);
  if (!drops_bytes()) return bytes.size();
  return bytes.size() == 1 && file_.byte_token(static_cast<uint8_t>(bytes[0])) == id ? 1 : known_part(bytes).size();
}

void Tokenizer::encode(std::string_view text, TextForm form, std::optional<int32_t> previous, std::vector<int32_t>& tokens) const {
  encode(text, form, previous, tokens, nullptr);
}

void Tokenizer::encode_measured(std::string_view content, std::optional<int32_t> previous, std::vector<int32_t>& tokens,
                                std::vector<size_t>& ends) const {
  encode(content, TextForm::content, previous, tokens, &ends);
}

void Tokenizer::encode(std::string_view text, TextForm form, std::optional<int32_t> previous, std::vector<int32_t>& tokens,
                       std::vector<size_t>* ends) const {
  check_utf8(text);
  const size_t begin = tokens.size();
  Encoding(*this, form, tokens, ends).take(text, continues(previous));
  if (form == TextForm::of_template || !file_.whole_words) return;
  // Merges make no control token of ordinary words, but a word may be looked up before it is merged.
  for (size_t i = begin; i < tokens.size(); i++) {
    if (!is_control(tokens[i]) || static_cast<uint32_t>(tokens[i]) == file_.unknown) continue;
    const std::string token(file_.token(static_cast<uint32_t>(tokens[i])));
    tokens.resize(begin);
    throw Error(Kind::Data, "a text", "words that this tokenizer turns into its special token " + in_quotes(token), "words that stay words",
                "Leave that token out of the text");
  }
}

bool Tokenizer::is_control(int32_t token) const { return holds(control_ids_, token); }
bool Tokenizer::is_skipped(int32_t token) const { return holds(skipped_ids_, token); }

bool Tokenizer::continues(std::optional<int32_t> previous) const {
  if (!previous) return false;
  // The unknown token is often an added one, and yet no border between stretches.
  return file_.prefix == TokenizerFile::kBareText || !holds(added_ids_, *previous) || static_cast<uint32_t>(*previous) == file_.unknown;
}

size_t Tokenizer::longest_at(std::string_view text, size_t at, size_t low, size_t high) const {
  const size_t none = high;
  size_t longest = none;
  for (size_t depth = 0; low < high; depth++) {
    if (file_.added(low).sought.size() == depth) longest = low++;  // all of [low, high) share the bytes so far; the shortest is first
    if (low == high || at + depth == text.size()) break;
    const auto byte = static_cast<uint8_t>(text[at + depth]);
    const auto first_with = [&](unsigned least) {
      size_t begin = low, end = high;
      while (begin < end) {
        const size_t middle = (begin + end) / 2;
        if (static_cast<uint8_t>(file_.added(middle).sought[depth]) < least)
          begin = middle + 1;
        else
          end = middle;
      }
      return begin;
    };
    const size_t begin = first_with(byte), end = first_with(byte + 1u);
    low = begin;
    high = end;
  }
  return longest;
}

// The first added token from `at` on, the longest of several; one that may not be recognised is passed over as a whole.
Tokenizer::Found Tokenizer::next_added(std::string_view text, size_t at, bool normalized, TextForm form) const {
  const size_t low = normalized ? file_.raw_added() : 0, high = normalized ? file_.added() : file_.raw_added();
  const auto& first_bytes = first_bytes_[normalized];
  while (low < high && at < text.size()) {
    const size_t index = first_bytes[static_cast<uint8_t>(text[at])] ? longest_at(text, at, low, high) : high;
    if (index == high) {
      at++;
      continue;
    }
    const AddedToken token = file_.added(index);
    if (form == TextForm::of_template || !protected_[index]) return {at, at + token.sought.size(), token.id};
    at += token.sought.size();
  }
  return {text.size(), text.size(), kNoToken};
}

}  // namespace bespoke
