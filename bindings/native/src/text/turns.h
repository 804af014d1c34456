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
  bool is_context = false;  // never trained on, whatever its role
};

// A stretch of a rendered conversation. Content and ending carry their message's role, all other text none. `begins_answer`: up to here
// reads the prompt that is given to a model for this message of the assistant; where it is no content, it is what the model itself
// writes before one, and has the assistant's role.
struct TurnPiece {
  std::string text;
  std::optional<Place> role;
  bool is_content;
  bool begins_answer = false;
};

struct TurnGlue {
  Place previous, next;
  std::string text;
};

const char* name_of(Place place);
const char* kind_of(const nlohmann::json& value);  // in words for errors, as in sdk/bespoke/errors.py

class Turns {
 public:
  Turns(Bytes document, const std::string& subject);  // BundleError

  // Pieces that joined are the template's text; with `generate` it ends in the header of the assistant's answer. DataError where the
  // template knows no such order of roles.
  std::vector<TurnPiece> render(const std::vector<Message>& messages, bool generate, const std::string& subject) const;

  std::string_view ending(Place role) const;  // empty: the template has none
  bool knows(Place previous, Place next, bool last) const { return glue_.count({previous, next, last}) > 0; }
  // The glue before each message, not that which only a last one gets: where a template's turn tokens are.
  std::vector<TurnGlue> ordinary_glue() const;
  std::vector<std::string> markers() const;  // its texts, and the endings

 private:
  using Key = std::tuple<Place, Place, bool>;
  struct Trim {
    std::string left, right;  // characters
  };

  size_t prompt_size(Place previous, const std::string& glue) const;

  std::map<Key, std::string> glue_;
  std::map<Key, Trim> trims_;
  std::map<Place, std::string> endings_;
};

// No message may hold the added tokens of which the template makes its turns.
void protect_markers(Tokenizer& tokenizer, const Turns& turns);

}  // namespace bespoke
