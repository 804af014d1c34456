// SPDX-License-Identifier: Apache-2.0
// The regular expressions of tokenizer_kind.py by hand: each alternative is tried in order, with the backtracking that it would do.
#include "text/words.h"

#include "format/utf8.h"

namespace bespoke {

namespace {

class Scan {
 public:
  Scan(const TokenizerFile& file, std::string_view text) : file_(file), text_(text) {}

  size_t gpt2() const {
    if (const size_t size = contraction(false)) return size;
    const size_t behind_space = text_[0] == ' ' ? 1 : 0;
    for (const auto kind : {TokenizerFile::kLetter, TokenizerFile::kNumber, kOther}) {
      const size_t end = run(behind_space, kind);
      if (end > behind_space) return end;
    }
    return spaces();
  }

  size_t llama3() const {
    if (const size_t size = contraction(true)) return size;
    const Utf8Character first = character_at(text_, 0);
    const uint8_t classes = file_.classes(first.code);
    // [^\r\n L N]? takes a character where a letter follows; otherwise it gives it back.
    if (classes & TokenizerFile::kBeforeLetters) {
      const size_t end = run(first.size, TokenizerFile::kLetter);
      if (end > first.size) return end;
    }
    if (classes & TokenizerFile::kLetter) return run(0, TokenizerFile::kLetter);
    if (classes & TokenizerFile::kNumber) return run(0, TokenizerFile::kNumber, file_.most_numbers);
    const size_t behind_space = text_[0] == ' ' ? 1 : 0;
    const size_t end = run(behind_space, kOther);
    if (end > behind_space) return run(end, TokenizerFile::kNewline);
    const size_t newlines = behind_last_newline();
    return newlines ? newlines : spaces();
  }

 private:
  static constexpr auto kOther = TokenizerFile::Class(0);  // neither letter, number nor space

  bool is(uint32_t code, TokenizerFile::Class kind) const {
    const uint8_t classes = file_.classes(code);
    if (kind != kOther) return (classes & kind) != 0;
    return !(classes & (TokenizerFile::kLetter | TokenizerFile::kNumber | TokenizerFile::kSpace));
  }

  // Where a run of this kind ends that begins at `at`, of at most so many characters (0: no bound).
  size_t run(size_t at, TokenizerFile::Class kind, uint32_t most = 0) const {
    for (uint32_t count = 0; at < text_.size() && (most == 0 || count < most); count++) {
      const Utf8Character character = character_at(text_, at);
      if (!is(character.code, kind)) break;
      at += character.size;
    }
    return at;
  }

  // 's|'t|'re|'ve|'m|'ll|'d. Without regard to case, the long s U+017F is an s.
  size_t contraction(bool any_case) const {
    if (text_[0] != '\'' || text_.size() < 2) return 0;
    const auto letter = [&](size_t at) -> char {
      const char c = at < text_.size() ? text_[at] : '\0';
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    };
    if (any_case && text_.substr(1, 2) == "\xc5\xbf") return 3;
    const char a = letter(1), b = letter(2);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
    return 0;
  }

  // \s*[\r\n]+ ends behind the last newline of a run of spaces; 0: there is none.
  size_t behind_last_newline() const {
    size_t behind = 0;
    for (size_t at = 0; at < text_.size();) {
      const Utf8Character character = character_at(text_, at);
      const uint8_t classes = file_.classes(character.code);
      if (!(classes & TokenizerFile::kSpace)) break;
      at += character.size;
      if (classes & TokenizerFile::kNewline) behind = at;
    }
    return behind;
  }

  // \s+(?!\S)|\s+ leaves the last space to what follows, unless it is the only one.
  size_t spaces() const {
    size_t end = 0, last = 0;
    while (end < text_.size()) {
      const Utf8Character character = character_at(text_, end);
      if (!is(character.code, TokenizerFile::kSpace)) break;
      last = end;
      end += character.size;
    }
    if (end == 0) return character_at(text_, 0).size;  // tables that contradict themselves: go on, by one character
    return end == text_.size() || last == 0 ? end : last;
  }

  const TokenizerFile& file_;
  const std::string_view text_;
};

// Before each sign for a space behind something else, where no merge goes across.
size_t to_next_space(std::string_view text) {
  for (size_t at = text.find(kSpaceSign, 1); at != std::string_view::npos; at = text.find(kSpaceSign, at + 1)) {
    if (at < kSpaceSign.size() || text.substr(at - kSpaceSign.size(), kSpaceSign.size()) != kSpaceSign) return at;
  }
  return text.size();
}

}  // namespace

size_t word_size(const TokenizerFile& file, std::string_view text) {
  switch (file.pattern) {
    case TokenizerFile::kGpt2:
      return Scan(file, text).gpt2();
    case TokenizerFile::kLlama3:
      return Scan(file, text).llama3();
    case TokenizerFile::kSentencepiece:
      break;
  }
  return file.cuts_words ? to_next_space(text) : text.size();
}

size_t size_to_digit(const TokenizerFile& file, std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Character character = character_at(text, at);
    if (file.classes(character.code) & TokenizerFile::kSingleDigit) return at ? at : character.size;
    at += character.size;
  }
  return at;
}

}  // namespace bespoke
