// SPDX-License-Identifier: Apache-2.0
// Verbs and settings that an error's text names, as data, so that each language says them in its own words (sdk/bespoke/remedies.py):
//
//   throw Error(..., "Continue it without them, or " + to_call(Verb::abandon_run) + " and train again");
//
// A `Wording` is a text with C's words, and keeps its pieces: a plain text is never parsed, so what a user wrote stays what it is.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace bespoke {

enum class Verb {
#define BESPOKE_VERB(key, c, python) key,
#include "../../schema/verbs.inc"
#undef BESPOKE_VERB
};

struct Wording : std::string {
  struct Piece {
    std::string text;  // in C's words
    std::string json;  // of a reference; empty: it is a text
  };

  Wording() = default;
  Wording(std::string text) : std::string(std::move(text)) {}
  Wording(const char* text) : std::string(text) {}
  explicit Wording(std::vector<Piece> pieces);

  std::vector<Piece> pieces;  // none: a text alone
};

Wording operator+(Wording left, const Wording& right);
Wording operator+(Wording left, std::string right);
Wording operator+(Wording left, const char* right);
Wording operator+(std::string left, const Wording& right);
Wording operator+(const char* left, const Wording& right);

Wording to_call(Verb verb, const char* argument = nullptr);  // "call bespoke_forget_example"

// A setting, of a table as "training.steps": alone, or with a value. In C it has the same name.
Wording setting(const std::string& name);
Wording setting(const std::string& name, bool value);
Wording setting(const std::string& name, int64_t value);
Wording setting(const std::string& name, const std::string& value);
inline Wording setting(const std::string& name, const char* value) { return setting(name, std::string(value)); }
Wording setting_as(const std::string& name, const std::string& shown, const std::string& json);  // a value in Python's words, and as JSON

// Made fit to be shown, as `printable` does with a text; of a long one its pieces are given up.
Wording printable(Wording words);

// A list of texts and references: ["Continue it, or ", {"do": "abandon_run"}]. Empty for a text alone.
std::string json_of(const Wording& words);

}  // namespace bespoke
