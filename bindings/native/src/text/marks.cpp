// SPDX-License-Identifier: Apache-2.0
#include "text/marks.h"

#include <algorithm>
#include <set>

#include "error.h"
#include "format/untrusted_text.h"
#include "format/utf8.h"

namespace bespoke {

namespace {

constexpr std::string_view kSpaces = " \t\n\v\f\r";
constexpr size_t kMostBytes = 64;  // of a mark: a longer line begins with one

bool is_space(char c) { return kSpaces.find(c) != std::string_view::npos; }

// Letters, digits and spaces of any script: such words stand in ordinary messages too.
bool is_words(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return is_space(c) || c == '_' || static_cast<uint8_t>(c) >= 0x80 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z');
  });
}

// A line of glue without the spaces around it, and with them.
struct Line {
  std::string_view text, spaced;
};

void add_lines(std::string_view text, std::vector<Line>& lines) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    size_t first = at, behind = end;
    while (first < behind && is_space(text[first])) first++;
    while (first < behind && is_space(text[behind - 1])) behind--;
    if (first < behind) {
      size_t left = first, right = behind;
      while (left > 0 && is_space(text[left - 1])) left--;
      while (right < text.size() && is_space(text[right])) right++;
      lines.push_back({text.substr(first, behind - first), text.substr(left, right - left)});
    }
    at = end + 1;
  }
}

std::string shortened(std::string mark) {
  if (mark.size() <= kMostBytes) return mark;
  size_t size = kMostBytes;
  while ((static_cast<uint8_t>(mark[size]) & 0xc0) == 0x80) size--;
  return mark.substr(0, size);
}

// Where glue holds a token that no content becomes, no content becomes the glue either; then only what could be taken for a turn all the
// same is a mark, and no word is.
void add_marks(const Tokenizer& tokenizer, const TurnGlue& glue, std::set<std::string>& marks) {
  const bool first_of_all = glue.previous == Place::start;  // an opening may be a long text: only how it ends is a mark
  const std::vector<TemplatePart> parts = tokenizer.parts(glue.text);
  const bool has_control = std::any_of(parts.begin(), parts.end(), [](const TemplatePart& part) { return part.control.has_value(); });
  if (has_control && first_of_all) return;
  std::vector<Line> lines;
  for (const TemplatePart& part : parts) add_lines(part.text, lines);
  if (has_control)
    lines.erase(std::remove_if(lines.begin(), lines.end(), [](const Line& line) { return is_words(line.text); }), lines.end());
  if (lines.empty()) return;
  std::vector<Line> kept = {lines.back()};
  if (!first_of_all) kept.push_back(lines.front());
  for (const Line& line : kept) {
    if (!is_words(line.text))
      marks.insert(shortened(tokenizer.canonical(line.text)));
    else if (!first_of_all)
      marks.insert(shortened(tokenizer.canonical(line.spaced)));
  }
}

size_t character_begin(std::string_view text, size_t at) {
  while ((static_cast<uint8_t>(text[at]) & 0xc0) == 0x80) at--;
  return at;
}

// The tokens of each character of `mark`, within a text.
std::vector<int32_t> spelled(const Tokenizer& tokenizer, const std::string& mark) {
  std::vector<int32_t> tokens;
  for (size_t at = 0; at < mark.size();) {
    const size_t size = character_at(mark, at).size;
    tokenizer.encode(std::string_view(mark).substr(at, size), TextForm::content, kWithinText, tokens);
    at += size;
  }
  return tokens;
}

}  // namespace

Marks::Marks(const Tokenizer& tokenizer, const Turns& turns) : tokenizer_(&tokenizer) {
  std::set<std::string> marks;
  std::vector<std::vector<int32_t>> glues;
  for (const TurnGlue& glue : turns.ordinary_glue()) {
    add_marks(tokenizer, glue, marks);
    tokenizer.encode(glue.text, TextForm::of_template, std::nullopt, glues.emplace_back());
  }
  for (const std::string& mark : marks) {
    // What the first character becomes depends on what stands before it.
    const std::vector<int32_t> tokens = spelled(tokenizer, mark);
    const std::string known = tokenizer.known_part(mark);
    if (known.empty()) continue;  // nothing by which any text could hold it
    const bool same =
        tokens.size() < 2 || std::any_of(
                                 glues.begin(), glues.end(),
                                 [&](const std::vector<int32_t>& glue) {
                                   return std::search(glue.begin(), glue.end(), tokens.begin() + 1, tokens.end()) != glue.end();
                                 });
    marks_.push_back(mark);
    known_.push_back(known);
    spelled_.push_back(!same);
  }
}

std::vector<std::string> Marks::parts(const std::string& content, const std::string& subject) const {
  if (marks_.empty()) return {content};
  const std::string text = tokenizer_->canonical(content);
  // Looked for in what the model gets of the text: without the bytes that have no token, other words may read as a mark.
  std::vector<size_t> places;
  const std::string known = tokenizer_->known_part(text, &places);
  const auto place = [&](size_t at) { return places.empty() ? at : places[at]; };
  std::vector<bool> cut;  // before each byte, and behind the last
  for (size_t i = 0; i < marks_.size(); i++) {
    const std::string& mark = known_[i];
    for (size_t at = known.find(mark); at != std::string::npos; at = known.find(mark, at + 1)) {
      if (!spelled_[i]) {
        throw Error(Kind::Data, subject,
                    "words that this tokenizer makes the same tokens of as the chat template's own " + in_quotes(marks_[i]),
                    "words that stay words", "Leave them out of the text");
      }
      if (cut.empty()) cut.resize(text.size() + 1);
      const size_t begin = character_begin(text, place(at)), last = character_begin(text, place(at + mark.size() - 1));
      const size_t end = last + character_at(text, last).size;
      std::fill_n(cut.begin() + static_cast<ptrdiff_t>(begin), end - begin + 1, true);
    }
  }
  if (cut.empty()) return {content};
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t at = 0; at < text.size(); at += character_at(text, at).size) {
    if (!cut[at] || at == begin) continue;
    parts.push_back(text.substr(begin, at - begin));
    begin = at;
  }
  parts.push_back(text.substr(begin));
  return parts;
}

}  // namespace bespoke
