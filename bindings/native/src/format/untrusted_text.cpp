// SPDX-License-Identifier: Apache-2.0
// Nothing here allocates as much as it looks at: texts may be as long as their file.
#include "format/untrusted_text.h"

#include <algorithm>
#include <cstdio>
#include <vector>

namespace bespoke {

namespace {

struct Range {
  uint32_t first, last;
};

// Cc, Cf, Co, Cs, Zl, Zp and Zs without the space, of Unicode 15.
constexpr Range kUnprintable[] = {
    {0x0, 0x1f},        {0x7f, 0xa0},       {0xad, 0xad},       {0x600, 0x605},       {0x61c, 0x61c},     {0x6dd, 0x6dd},
    {0x70f, 0x70f},     {0x890, 0x891},     {0x8e2, 0x8e2},     {0x1680, 0x1680},     {0x180e, 0x180e},   {0x2000, 0x200f},
    {0x2028, 0x202f},   {0x205f, 0x2064},   {0x2066, 0x206f},   {0x3000, 0x3000},     {0xd800, 0xf8ff},   {0xfeff, 0xfeff},
    {0xfff9, 0xfffb},   {0x110bd, 0x110bd}, {0x110cd, 0x110cd}, {0x13430, 0x1343f},   {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a},
    {0xe0001, 0xe0001}, {0xe0020, 0xe007f}, {0xf0000, 0xffffd}, {0x100000, 0x10fffd},
};

// One character from `at` on, which moves behind it; -1 where there is none.
int32_t next_character(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(at);
  if (first < 0x80) return byte(at++);
  const int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
  if (first < 0xc2 || first > 0xf4 || at + static_cast<size_t>(more) >= text.size()) return -1;
  int32_t code = first & (0x3f >> more);
  for (int i = 1; i <= more; i++) {
    if ((byte(at + static_cast<size_t>(i)) & 0xc0) != 0x80) return -1;
    code = code << 6 | (byte(at + static_cast<size_t>(i)) & 0x3f);
  }
  constexpr int32_t least[] = {0, 0x80, 0x800, 0x10000};
  if (code < least[more] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return -1;
  at += static_cast<size_t>(more) + 1;
  return code;
}

bool is_printable_character(int32_t code) {
  for (const Range& range : kUnprintable)
    if (static_cast<uint32_t>(code) >= range.first && static_cast<uint32_t>(code) <= range.last) return false;
  return (code & 0xfffe) != 0xfffe;  // no characters by definition
}

// One character of `text` from `at` on, or one byte that is none, as it may be shown; `at` moves behind it.
std::string shown_character(std::string_view text, size_t& at) {
  const size_t before = at;
  const int32_t code = next_character(text, at);
  if (code >= 0 && is_printable_character(code)) return std::string(text.substr(before, at - before));
  char escaped[16];
  if (code < 0) {
    std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<uint8_t>(text[at++]));
  } else if (code == '\n' || code == '\r' || code == '\t') {
    return code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t";
  } else {
    std::snprintf(escaped, sizeof escaped, code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", static_cast<unsigned>(code));
  }
  return escaped;
}

bool continues_character(char c) { return (static_cast<uint8_t>(c) & 0xc0) == 0x80; }

std::string left_out(size_t count) { return " ... " + std::to_string(count) + " characters left out ... "; }

bool name_character(char c, bool first) {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) return true;
  return c == '_' || c == '@' || c == '+' || c == '=' || c == '-' || (c == '.' && !first);
}

}  // namespace

size_t first_bad_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t before = at;
    if (next_character(text, at) < 0) return before;
  }
  return std::string_view::npos;
}

size_t count_characters(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<uint8_t>(c) & 0xc0) != 0x80;
  return count;
}

bool is_printable(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const int32_t code = next_character(text, at);
    if (code < 0) return false;
    if (!is_printable_character(code)) return false;
  }
  return true;
}

std::string in_quotes(std::string_view text, size_t limit) {
  const bool cut = text.size() > limit;
  std::string out = "'";
  for (const char c : text.substr(0, limit)) {
    if (c == '\'' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c >= 0x20 && c < 0x7f) {
      out += c;
    } else {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<uint8_t>(c));
      out += escaped;
    }
  }
  return out + (cut ? "'..." : "'");
}

std::string printable(std::string text, size_t most) {
  if (text.size() <= most) {
    if (is_printable(text)) return text;
    std::string whole;
    for (size_t at = 0; at < text.size();) whole += shown_character(text, at);
    if (whole.size() <= most) return whole;
  }
  const size_t room = (most - left_out(text.size()).size()) / 2;
  std::string head;
  size_t begin = 0;
  for (size_t at = 0; at < text.size(); begin = at) {
    const std::string shown = shown_character(text, at);
    if (head.size() + shown.size() > room) break;
    head += shown;
  }
  // From the end back, in pieces that begin where a character may: the last one that still fits is the tail.
  size_t end = text.size(), size = 0;
  std::vector<std::string> tail;
  while (end > begin) {
    size_t from = end - 1;
    while (from > begin && end - from < 4 && continues_character(text[from])) from--;
    size_t at = from;
    std::string shown = shown_character(text, at);
    if (at != end) from = end - 1, at = from, shown = shown_character(text, at);  // a byte that belongs to no character
    if (size + shown.size() > room) break;
    size += shown.size(), end = from;
    tail.push_back(std::move(shown));
  }
  std::string out = head + left_out(count_characters(std::string_view(text).substr(begin, end - begin)));
  for (auto piece = tail.rbegin(); piece != tail.rend(); ++piece) out += *piece;
  return out;
}

const char* file_name_problem(std::string_view name) {
  size_t components = 1;
  for (const char c : name) components += c == '/';
  if (name.size() > 255 || components > 8) return "longer than 255 characters or 8 folders";
  if (is_reserved(lower_case(name))) return "reserved for the bundle itself";
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    bool sound = end > begin;
    for (size_t i = begin; i < end; i++) sound &= name_character(name[i], i == begin);
    if (!sound) return "not a relative path of letters, digits and _.@+=- (no '..', no backslash, no leading dot)";
    begin = end + 1;
  }
  return nullptr;
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

bool is_reserved(std::string_view name) { return name == "manifest.json" || name == "manifest.sha256" || name == "signature"; }

}  // namespace bespoke
