// SPDX-License-Identifier: Apache-2.0
// turns.json: a chat template as data (sdk/bespoke/data/turns.py). A conversation is content with glue between, by the role before,
// the role behind and whether that is the last message; the beginning of the glue behind a message may be the ending of its turn.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "bytes.h"

namespace bespoke {

class Tokenizer;

// What stands before or behind glue: a message's role, or one of the ends. In the order of their names.
enum class Place { assistant, end, generate, start, system, user };

struct Message {
  Place role;  // assistant, system or user
  std::string content;
};

// A stretch of a rendered conversation. Content and ending carry their message's role, all other text none.
struct TurnPiece {
  std::string text;
  std::optional<Place> role;
  bool is_content;
};

// The messages of an example or a prompt. DataError where one is not {"role": ..., "content": text}.
std::vector<Message> read_messages(const nlohmann::json& messages, const std::string& subject);

const char* name_of(Place place);
const char* kind_of(const nlohmann::json& value);  // in words for errors, as in sdk/bespoke/errors.py

class Turns {
 public:
  Turns(Bytes document, const std::string& subject);  // BundleError

  // Pieces that joined are the template's text; with `generate` it ends in the header of the assistant's answer. DataError where the
  // template knows no such order of roles.
  std::vector<TurnPiece> render(const std::vector<Message>& messages, bool generate, const std::string& subject) const;

  std::string_view ending(Place role) const;  // empty: the template has none
  std::vector<std::string> markers() const;   // the glue of every ordinary turn: where a template's turn tokens are

 private:
  using Key = std::tuple<Place, Place, bool>;
  struct Trim {
    std::string left, right;  // characters
  };

  std::map<Key, std::string> glue_;
  std::map<Key, Trim> trims_;
  std::map<Place, std::string> endings_;
};

// No message may hold the added tokens of which the template makes its turns.
void protect_markers(Tokenizer& tokenizer, const Turns& turns);

}  // namespace bespoke
