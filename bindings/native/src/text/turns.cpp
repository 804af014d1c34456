// SPDX-License-Identifier: Apache-2.0
#include "text/turns.h"

#include <algorithm>
#include <set>

#include "error.h"
#include "format/json.h"
#include "text/tokenizer.h"
#include "format/utf8.h"

namespace bespoke {

namespace {

constexpr const char* kPlaces[] = {"assistant", "end", "generate", "start", "system", "user"};
constexpr size_t kLargestBytes = 1 << 20, kShownRoles = 12;

bool is_role(Place place) { return place == Place::assistant || place == Place::system || place == Place::user; }

std::optional<Place> place_named(const Json& name) {
  if (!name.is_string()) return std::nullopt;
  for (size_t i = 0; i < std::size(kPlaces); i++) {
    if (name.get_ref<const std::string&>() == kPlaces[i]) return static_cast<Place>(i);
  }
  return std::nullopt;
}

// The fields of one entry, each there once and no other.
class Entry {
 public:
  Entry(const Json& entry, const std::string& where, std::initializer_list<const char*> fields, const std::string& subject)
      : entry_(entry), where_(where), subject_(subject) {
    if (!entry.is_object()) refuse("no object");
    for (const char* field : fields) {
      if (!entry.contains(field)) refuse(std::string("no field '") + field + "'");
    }
    if (entry.size() != fields.size()) refuse("a field that is unknown");
  }

  Place place(const char* field, bool only_roles) const {
    const auto place = place_named(entry_[field]);
    if (!place || (only_roles && !is_role(*place))) refuse(std::string("another value of '") + field + "'");
    return *place;
  }

  const std::string& text(const char* field) const {
    if (!entry_[field].is_string()) refuse(std::string("no text for '") + field + "'");
    return entry_[field].get_ref<const std::string&>();
  }

  bool flag(const char* field) const {
    if (!entry_[field].is_boolean()) refuse(std::string("neither true nor false for '") + field + "'");
    return entry_[field].get<bool>();
  }

  [[noreturn]] void refuse(const std::string& got) const {
    throw Error(Kind::Bundle, subject_, where_ + ": " + got,
                "glue, trims and endings of a chat template, at most " + std::to_string(kLargestBytes) + " bytes",
                "Build the bundle again");
  }

 private:
  const Json& entry_;
  const std::string where_, subject_;
};

// Entries are sorted and unique, so that one template gives one file.
template <typename Key, typename Value>
void insert_last(std::map<Key, Value>& entries, const Key& key, Value value, const Entry& entry) {
  if (!entries.empty() && !(entries.rbegin()->first < key)) entry.refuse("entries that are not sorted and without repeats");
  entries.emplace(key, std::move(value));
}

bool holds(const std::string& characters, std::string_view one) { return characters.find(one) != std::string::npos; }

std::string_view without(std::string_view text, const std::string& left, const std::string& right) {
  while (!text.empty()) {
    const size_t size = character_at(text, 0).size;
    if (!holds(left, text.substr(0, size))) break;
    text.remove_prefix(size);
  }
  while (!text.empty()) {
    size_t begin = text.size() - 1;
    while ((static_cast<uint8_t>(text[begin]) & 0xc0) == 0x80) begin--;
    if (!holds(right, text.substr(begin))) break;
    text.remove_suffix(text.size() - begin);
  }
  return text;
}

// All of a few; of many those that end at `place`.
std::string shown_roles(const std::vector<Message>& messages, size_t place) {
  const bool few = messages.size() <= kShownRoles;
  const size_t end = few ? messages.size() : std::min(place + 1, messages.size());
  const size_t begin = end > kShownRoles ? end - kShownRoles : 0;
  std::string roles = begin ? "..." : "";
  for (size_t i = begin; i < end; i++) roles += std::string(roles.empty() ? "" : " ") + name_of(messages[i].role);
  return roles + (end < messages.size() ? " ..." : "");
}

}  // namespace

const char* name_of(Place place) { return kPlaces[static_cast<size_t>(place)]; }

Turns::Turns(Bytes document, const std::string& subject) {
  const OwnedJson owned = parse_json(document, {subject, Kind::Bundle, "Build the bundle again", kLargestBytes, 8, 100'000});
  const Json& root = *owned;
  const Entry whole(root, "the file", {"glue", "trims", "endings"}, subject);
  const auto each = [&](const char* list, std::initializer_list<const char*> fields, auto take) {
    if (!root[list].is_array()) whole.refuse(std::string("no list '") + list + "'");
    size_t number = 0;
    for (const Json& entry : root[list]) take(Entry(entry, std::string(list) + "." + std::to_string(number++), fields, subject));
  };
  each("glue", {"previous", "next", "last", "text"}, [&](const Entry& entry) {
    insert_last(glue_, Key(entry.place("previous", false), entry.place("next", false), entry.flag("last")), entry.text("text"), entry);
  });
  each("trims", {"previous", "role", "last", "left", "right"}, [&](const Entry& entry) {
    insert_last(trims_, Key(entry.place("previous", false), entry.place("role", true), entry.flag("last")),
                Trim{entry.text("left"), entry.text("right")}, entry);
  });
  each("endings", {"role", "text"},
       [&](const Entry& entry) { insert_last(endings_, entry.place("role", true), entry.text("text"), entry); });
  for (const auto& [role, text] : endings_) {
    for (const auto& [key, glue] : glue_) {
      if (std::get<0>(key) == role && glue.compare(0, text.size(), text) != 0)
        whole.refuse("an ending that does not begin every glue behind its role");
    }
  }
}

std::string_view Turns::ending(Place role) const {
  const auto found = endings_.find(role);
  return found == endings_.end() ? std::string_view() : found->second;
}

std::vector<TurnGlue> Turns::ordinary_glue() const {
  std::vector<TurnGlue> found;
  for (const auto& [key, text] : glue_) {
    const auto& [previous, next, last] = key;
    if (!last && is_role(next)) found.push_back({previous, next, text});
  }
  return found;
}

std::vector<std::string> Turns::markers() const {
  std::vector<std::string> found;
  for (TurnGlue& glue : ordinary_glue()) found.push_back(std::move(glue.text));
  for (const auto& [role, text] : endings_) found.push_back(text);
  return found;
}

// Of the glue before an answer, as much as a prompt ends with: all of it where the prompt ends otherwise.
size_t Turns::prompt_size(Place previous, const std::string& glue) const {
  const auto prompt = glue_.find(Key(previous, Place::generate, false));
  const bool begins = prompt != glue_.end() && glue.compare(0, prompt->second.size(), prompt->second) == 0;
  return begins ? prompt->second.size() : glue.size();
}

std::vector<TurnPiece> Turns::render(const std::vector<Message>& messages, bool generate, const std::string& subject) const {
  std::vector<TurnPiece> pieces;
  for (size_t i = 0; i <= messages.size(); i++) {
    const Place previous = i ? messages[i - 1].role : Place::start;
    const Place next = i < messages.size() ? messages[i].role : generate ? Place::generate : Place::end;
    const Key key(previous, next, i + 1 == messages.size());
    const auto glue = glue_.find(key);
    if (glue == glue_.end()) {
      std::set<std::string> known;
      for (const auto& [other, text] : glue_) {
        if (std::get<0>(other) == previous && is_role(std::get<1>(other))) known.insert(name_of(std::get<1>(other)));
      }
      std::string after;
      for (const std::string& name : known) after += (after.empty() ? "" : ", ") + name;
      const char* hint = next == Place::system && previous == Place::start
                             ? "This model's template takes no system message: put those words into the first user message"
                             : "Order the messages as: system (if any), user, assistant, user, assistant, ...";
      throw Error(Kind::Data, subject,
                  "the roles " + shown_roles(messages, i) + ": '" + name_of(next) + "' after '" + name_of(previous) + "'",
                  std::string("after '") + name_of(previous) + "' one of " + (after.empty() ? "no message" : after),
                  previous == next ? std::string("Join neighbouring ") + name_of(previous) + " messages into one" : hint);
    }
    const std::string& text = glue->second;
    const std::string_view end = i ? ending(previous) : std::string_view();
    if (!end.empty()) pieces.push_back({std::string(end), previous, false});
    const bool answers = next == Place::assistant;
    const size_t prompt = std::max(end.size(), answers ? prompt_size(previous, text) : text.size());
    if (prompt > end.size()) pieces.push_back({text.substr(end.size(), prompt - end.size()), std::nullopt, false});
    if (text.size() > prompt) pieces.push_back({text.substr(prompt), Place::assistant, false, answers});
    if (i == messages.size()) break;
    std::string_view content = messages[i].content;
    const auto trim = trims_.find(key);
    if (trim != trims_.end()) content = without(content, trim->second.left, trim->second.right);
    pieces.push_back({std::string(content), next, true, answers && text.size() == prompt});
  }
  return pieces;
}

const char* kind_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "nothing";
    case Json::value_t::boolean:
      return "true or false";
    case Json::value_t::string:
      return "text";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "a list";
    default:
      return "a number";
  }
}

void protect_markers(Tokenizer& tokenizer, const Turns& turns) {
  for (const std::string& marker : turns.markers()) tokenizer.protect(marker);
}

}  // namespace bespoke
