// SPDX-License-Identifier: Apache-2.0
#include "remedies.h"

#include <cctype>
#include <iterator>

#include "format/untrusted_text.h"

namespace bespoke {
namespace {

struct VerbNames {
  const char *key, *c, *python;
};

constexpr VerbNames kVerbs[] = {
#define BESPOKE_VERB(key, c, python) {#key, c, python},
#include "../../schema/verbs.inc"
#undef BESPOKE_VERB
};

std::vector<Wording::Piece> pieces_of(const Wording& words) {
  if (!words.pieces.empty() || words.empty()) return words.pieces;
  return {{words, ""}};
}

// A JSON string of a text that is UTF-8.
std::string json_text_of(const std::string& text) {
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') json += '\\';
    json += c;
  }
  return json + "\"";
}

Wording reference(const std::string& text, const std::string& json) { return Wording(std::vector<Wording::Piece>{{text, json}}); }

}  // namespace

Wording::Wording(std::vector<Piece> given) : pieces(std::move(given)) {
  if (!pieces.empty() && pieces.front().json.rfind("{\"do\"", 0) == 0)  // it begins a sentence
    pieces.front().text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(pieces.front().text[0])));
  for (const Piece& piece : pieces) append(piece.text);
}

Wording operator+(Wording left, const Wording& right) {
  if (left.pieces.empty() && right.pieces.empty()) return std::string(std::move(left)).append(right);
  std::vector<Wording::Piece> pieces = pieces_of(left);
  std::vector<Wording::Piece> more = pieces_of(right);
  if (!pieces.empty() && !more.empty() && more.front().json.rfind("{\"do\"", 0) == 0)  // it is in the sentence now
    more.front().text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(more.front().text[0])));
  pieces.insert(pieces.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  return Wording(std::move(pieces));
}

Wording operator+(Wording left, std::string right) { return std::move(left) + Wording(std::move(right)); }
Wording operator+(Wording left, const char* right) { return std::move(left) + Wording(right); }
Wording operator+(std::string left, const Wording& right) { return Wording(std::move(left)) + right; }
Wording operator+(const char* left, const Wording& right) { return Wording(left) + right; }

Wording to_call(Verb verb, const char* argument) {
  const VerbNames& names = kVerbs[static_cast<size_t>(verb)];
  const std::string text = *names.c ? std::string("call ") + names.c : std::string("in Python, call ") + names.python;
  const std::string arguments = argument ? ",\"arguments\":[" + json_text_of(argument) + "]" : "";
  return reference(text, std::string("{\"do\":") + json_text_of(names.key) + arguments + "}");
}

Wording setting(const std::string& name) { return reference(name, "{\"setting\":" + json_text_of(name) + "}"); }

Wording setting(const std::string& name, bool value) { return setting_as(name, value ? "1" : "0", value ? "true" : "false"); }

Wording setting(const std::string& name, int64_t value) { return setting_as(name, std::to_string(value), std::to_string(value)); }

Wording setting(const std::string& name, const std::string& value) { return setting_as(name, "'" + value + "'", json_text_of(value)); }

Wording setting_as(const std::string& name, const std::string& shown, const std::string& json) {
  return reference(name + "=" + shown, "{\"setting\":" + json_text_of(name) + ",\"value\":" + json + "}");
}

Wording printable(Wording words) {
  if (words.size() <= kMaxPartBytes && is_printable(words)) return words;
  if (words.pieces.empty() || words.size() > kMaxPartBytes) return printable(static_cast<std::string>(std::move(words)));
  for (const Wording::Piece& piece : words.pieces)  // a reference to what cannot be shown is no reference
    if (!piece.json.empty() && !is_printable(piece.text)) return printable(static_cast<std::string>(std::move(words)));
  std::vector<Wording::Piece> pieces = words.pieces;
  for (Wording::Piece& piece : pieces)
    if (piece.json.empty()) piece.text = printable(std::move(piece.text), SIZE_MAX);
  Wording whole(std::move(pieces));
  return whole.size() <= kMaxPartBytes ? whole : Wording(printable(static_cast<std::string>(std::move(words))));
}

std::string json_of(const Wording& words) {
  if (words.pieces.empty()) return "";
  std::string json;
  for (const Wording::Piece& piece : words.pieces)
    json += (json.empty() ? "[" : ",") + (piece.json.empty() ? json_text_of(piece.text) : piece.json);
  return json + "]";
}

}  // namespace bespoke
