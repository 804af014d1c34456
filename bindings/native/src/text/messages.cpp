// SPDX-License-Identifier: Apache-2.0
#include "text/messages.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "error.h"
#include "format/json.h"
#include "format/json_schema.h"
#include "format/untrusted_text.h"

namespace bespoke {

namespace {

constexpr size_t kMostKeys = 32, kMostCharacters = 64;  // of unused keys that are named, and of one of them
constexpr const char* kForm = R"({"role": "user", "content": "..."})";
constexpr const char* kParts = R"(text, or a list of {"type": "text", "text": "..."})";
constexpr const char* kCalls[] = {"tool_calls", "function_call"};
constexpr const char* kOneText = "Give the content as one string";

// What other formats and APIs call a role.
constexpr std::pair<const char*, const char*> kOtherNames[] = {
    {"human", "user"},    {"person", "user"},       {"gpt", "assistant"},   {"chatgpt", "assistant"},
    {"bot", "assistant"}, {"chatbot", "assistant"}, {"model", "assistant"}, {"ai", "assistant"},
};

[[noreturn]] void wrong(const std::string& where, const std::string& got, const std::string& expected, const std::string& next_step) {
  throw Error(Kind::Data, where, got, expected, next_step);
}

std::string shown_value(const Json& value) {
  if (value == Json("")) return "an empty text";
  return value.is_string() || value.is_number() ? shown(value) : kind_of(value);
}

const Json& member(const Json& object, const char* name) {
  static const Json nothing;
  const auto found = object.find(name);
  return found == object.end() ? nothing : *found;
}

bool is_empty(const Json& call) {
  return call.is_null() || call == Json(false) || call == Json("") || (call.is_structured() && call.empty());
}

const char* role_named(const std::string& name) {
  for (const char* role : {"system", "user", "assistant"}) {
    if (name == role) return role;
  }
  return nullptr;
}

Place read_role(const Json& role, const std::string& where) {
  std::string next_step = "Rename or leave out this message";
  if (role.is_string()) {
    const auto& given = role.get_ref<const std::string&>();
    if (given == "system" || given == "developer") return Place::system;
    if (given == "user") return Place::user;
    if (given == "assistant") return Place::assistant;
    const std::string name = lower_case(given);
    const char* known = role_named(name);
    for (const auto& [other, meant] : kOtherNames) {
      if (name == other) known = meant;
    }
    if (known)
      next_step = std::string("Call this role ") + known;
    else if (name == "tool" || name == "function")
      next_step = "Write what it answered into a message of the user, as your app will give it, or leave this example out";
  }
  wrong(where + ".role", role.is_null() ? "no role" : shown_value(role), "one of system, user, assistant", next_step);
}

std::string read_content(const Json& content, const std::string& message) {
  if (content.is_string()) return content.get<std::string>();
  const std::string where = message + ".content";
  if (!content.is_array()) wrong(where, kind_of(content), "text", kOneText);
  if (content.empty()) wrong(where, "an empty list", kParts, kOneText);
  for (const Json& part : content) {
    if (!part.is_object()) wrong(where, std::string("a list that holds ") + kind_of(part), kParts, kOneText);
  }
  std::string joined;
  for (size_t i = 0; i < content.size(); i++) {
    const Json &kind = member(content[i], "type"), &text = member(content[i], "text");
    const std::string part = where + "[" + std::to_string(i) + "]";
    if (kind != Json("text")) {
      wrong(part, kind.is_null() ? "a part without a type" : "a part of type " + shown_value(kind), "parts of type text",
            "Say in a part of text what it holds, or leave this example out");
    }
    if (!text.is_string()) wrong(part + ".text", kind_of(text), "text", "Give the text of a part as one string");
    joined += text.get_ref<const std::string&>();
  }
  return joined;
}

bool read_is_context(const Json& weight, const std::string& message) {
  if (weight.is_null() || weight == Json(true) || (weight.is_number() && weight == Json(1))) return false;
  if (weight == Json(false) || (weight.is_number() && weight == Json(0))) return true;
  wrong(message + ".weight", shown_value(weight), "0 or 1",
        "Give 0 to keep the message as context that is not trained on, 1 or no weight otherwise");
}

std::string first_characters(const std::string& text) {
  size_t characters = 0;
  for (size_t at = 0; at < text.size(); at++) {
    const bool begins = (static_cast<uint8_t>(text[at]) & 0xc0) != 0x80;
    if (begins && characters++ == kMostCharacters) return text.substr(0, at) + "...";
  }
  return text;
}

template <class Names>
void count_unused(const Json& object, const Names& used, const std::string& of, std::map<std::string, uint64_t>& found) {
  for (const auto& [key, value] : object.items()) {
    if (std::none_of(std::begin(used), std::end(used), [&key = key](const char* name) { return key == name; }))
      found[of + first_characters(key)]++;
  }
}

}  // namespace

std::vector<Message> read_messages(const Json& messages, const std::string& subject) {
  if (!messages.is_array() || messages.empty()) {
    wrong(subject, messages.is_array() ? "an empty list" : kind_of(messages), std::string("a list of ") + kForm,
          "Give at least one message");
  }
  std::vector<Message> read;
  bool has_system = false, has_developer = false;
  for (size_t i = 0; i < messages.size(); i++) {
    const Json& message = messages[i];
    const std::string where = subject + "[" + std::to_string(i) + "]";
    if (!message.is_object()) wrong(where, kind_of(message), kForm, "Give each message as an object");
    const Json& role = member(message, "role");
    const Place place = read_role(role, where);
    if (place == Place::system) (role == Json("system") ? has_system : has_developer) = true;
    for (const char* call : kCalls) {
      if (!is_empty(member(message, call)))
        wrong(where, "a tool call", "text", "Write the call into the content, as the model shall write it");
    }
    std::string content = read_content(member(message, "content"), where);
    read.push_back({place, std::move(content), read_is_context(member(message, "weight"), where)});
  }
  if (has_system && has_developer) {
    wrong(subject, "a message of the system and one of the developer", "one of them: both instruct the model",
          "Join them into one system message");
  }
  return read;
}

std::map<std::string, uint64_t> unused_keys(const Json& example, std::initializer_list<const char*> used) {
  std::map<std::string, uint64_t> found;
  count_unused(example, used, "", found);
  const bool has_messages = std::any_of(used.begin(), used.end(), [](const char* name) { return name == std::string_view("messages"); });
  if (has_messages) {
    for (const Json& message : example["messages"]) {
      count_unused(message, std::initializer_list<const char*>{"role", "content", "weight", kCalls[0], kCalls[1]}, "messages.", found);
      const Json& content = member(message, "content");
      if (!content.is_array()) continue;
      for (const Json& part : content) count_unused(part, std::initializer_list<const char*>{"type", "text"}, "messages.content.", found);
    }
  }
  if (found.size() <= kMostKeys) return found;
  std::vector<std::pair<std::string, uint64_t>> order(found.begin(), found.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& one, const auto& other) { return one.second > other.second; });
  std::map<std::string, uint64_t> named(order.begin(), order.begin() + kMostKeys);
  uint64_t others = 0;
  for (size_t i = kMostKeys; i < order.size(); i++) others += order[i].second;
  named["..."] = others;
  return named;
}

}  // namespace bespoke
