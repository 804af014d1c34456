// SPDX-License-Identifier: Apache-2.0
// Every fault of a piece is found, up to a limit, so that an error names all fields that are missing or wrong.
#include "format/schema.h"

#include <algorithm>
#include <set>

#include "format/text.h"

namespace bespoke {

using Json = nlohmann::json;

namespace {

constexpr const char* kKeywords[] = {
    "$defs",     "$ref",          "additionalProperties", "anyOf",    "const",      "description", "discriminator",
    "enum",      "exclusiveMaximum", "exclusiveMinimum",  "items",    "maxItems",   "maxLength",   "maxProperties",
    "maximum",   "minItems",      "minLength",            "minimum",  "oneOf",      "pattern",     "properties",
    "propertyNames", "required",  "title",                "type",
};

// The one pattern of the schemas; another is an unknown keyword.
constexpr const char* kHashPattern = "^[0-9a-f]{64}$";

bool is_hash(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

bool has_type(const Json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "integer") return value.is_number_integer();
  return type == "number" && value.is_number();
}

const char* name_of_type(const std::string& type) {
  if (type == "object") return "an object";
  if (type == "array") return "a list";
  if (type == "string") return "a text";
  if (type == "boolean") return "true or false";
  if (type == "integer") return "a whole number";
  if (type == "number") return "a number";
  return "null";
}

void add(Faults& faults, const std::string& path, std::string got, std::string expected) {
  if (faults.size() < kMostFaults) faults.push_back({path, std::move(got), std::move(expected)});
}

void find_unknown(const Json& part, std::set<std::string>& unknown) {
  if (part.is_array()) {
    for (const Json& inner : part) find_unknown(inner, unknown);
  }
  if (!part.is_object()) return;
  for (const auto& [key, inner] : part.items()) {
    if (std::find(std::begin(kKeywords), std::end(kKeywords), key) == std::end(kKeywords)) unknown.insert(key);
    if (key == "pattern" && inner != kHashPattern) unknown.insert("pattern " + inner.dump());
    if (key == "properties" || key == "$defs") {
      for (const Json& field : inner) find_unknown(field, unknown);
    } else if (key != "enum" && key != "const" && key != "required" && key != "discriminator") {
      find_unknown(inner, unknown);
    }
  }
}

std::string listed(const Json& values) {
  std::string out;
  for (const Json& value : values) out += (out.empty() ? "" : ", ") + shown(value);
  return out;
}

}  // namespace

std::string shown(const Json& value) {
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_string()) return in_quotes(value.get_ref<const std::string&>(), 78);
  if (value.is_object()) return "an object of " + std::to_string(value.size()) + " members";
  if (value.is_array() && value.size() > 16) return "a list of " + std::to_string(value.size()) + " elements";
  if (!value.is_array()) return value.dump();
  const std::string inner = listed(value);
  return inner.size() > 78 ? "a list of " + std::to_string(value.size()) + " elements" : "[" + inner + "]";
}

std::string join_path(const std::string& path, const std::string& key) {
  const std::string plain = in_quotes(key, 100);
  return (path.empty() ? "" : path + ".") + plain.substr(1, plain.rfind('\'') - 1);
}

Schema::Schema(const unsigned char* text, unsigned long size, TextRule rule)
    : document_(Json::parse(text, text + size)), rule_(std::move(rule)) {}

const Json& Schema::resolve(const Json& part) const {
  const auto reference = part.find("$ref");
  if (reference == part.end()) return part;
  const std::string& target = reference->get_ref<const std::string&>();  // "#/$defs/Name"
  return document_.at("$defs").at(target.substr(target.rfind('/') + 1));
}

std::vector<std::string> Schema::unknown_keywords() const {
  std::set<std::string> unknown;
  find_unknown(document_, unknown);
  return {unknown.begin(), unknown.end()};
}

const Json* Schema::member(const Json& part, const std::string& key, const std::string& path, Faults& faults) const {
  if (const auto properties = part.find("properties"); properties != part.end()) {
    if (const auto field = properties->find(key); field != properties->end()) return &*field;
  }
  const auto more = part.find("additionalProperties");
  if (more == part.end() || !more->is_object()) {
    add(faults, join_path(path, key), "a field of that name", "no such field");
    return nullptr;
  }
  const auto names = part.find("propertyNames");
  check_text(key, names == part.end() ? Json{{"type", "string"}} : *names, join_path(path, key), faults);
  return &*more;
}

void Schema::check_size(const Json& part, size_t count, bool object, bool ended, const std::string& path, Faults& faults) const {
  const auto most = part.find(object ? "maxProperties" : "maxItems");
  if (most != part.end() && count > most->get<size_t>()) {
    add(faults, path, std::to_string(count) + (object ? " members" : " elements"), "at most " + most->dump());
  }
  const auto least = part.find("minItems");
  if (ended && !object && least != part.end() && count < least->get<size_t>()) {
    add(faults, path, std::to_string(count) + " elements", "at least " + least->dump());
  }
}

void Schema::check(const Json& value, const Json& given, const std::string& path, Faults& faults) const {
  const Json& part = resolve(given);
  if (part.contains("anyOf") || part.contains("oneOf")) return check_choice(value, part, path, faults);
  const auto type = part.find("type");
  if (type != part.end() && !has_type(value, type->get_ref<const std::string&>())) {
    return add(faults, path, shown(value), name_of_type(type->get_ref<const std::string&>()));
  }
  if (const auto only = part.find("const"); only != part.end() && value != *only) {
    return add(faults, path, shown(value), shown(*only));
  }
  if (const auto any = part.find("enum"); any != part.end() && std::find(any->begin(), any->end(), value) == any->end()) {
    return add(faults, path, shown(value), "one of " + listed(*any));
  }
  if (value.is_string()) check_text(value, part, path, faults);
  if (value.is_number()) check_number(value, part, path, faults);
  if (value.is_array() || value.is_object()) check_size(part, value.size(), value.is_object(), true, path, faults);
  if (value.is_array() && part.contains("items")) {
    const Json& items = part["items"];
    for (size_t i = 0; i < value.size() && faults.size() < kMostFaults; i++) {
      check(value[i], items, join_path(path, std::to_string(i)), faults);
    }
  }
  if (!value.is_object()) return;
  for (const auto& [key, inner] : value.items()) {
    if (faults.size() >= kMostFaults) return;
    const Json* field = member(part, key, path, faults);
    if (field) check(inner, *field, join_path(path, key), faults);
  }
  const auto required = part.find("required");
  if (required == part.end()) return;
  for (const Json& name : *required) {
    if (!value.contains(name.get_ref<const std::string&>())) {
      add(faults, join_path(path, name.get_ref<const std::string&>()), "nothing", "a value: every field is required");
    }
  }
}

void Schema::check_text(const Json& value, const Json& part, const std::string& path, Faults& faults) const {
  const std::string& text = value.get_ref<const std::string&>();
  const size_t count = count_characters(text);
  if (const auto most = part.find("maxLength"); most != part.end() && count > most->get<size_t>()) {
    return add(faults, path, shown(value), "at most " + most->dump() + " characters");
  }
  if (const auto least = part.find("minLength"); least != part.end() && count < least->get<size_t>()) {
    return add(faults, path, shown(value), "at least " + least->dump() + " characters");
  }
  if (part.contains("pattern") && !is_hash(text)) return add(faults, path, shown(value), "64 hexadecimal digits in lower case");
  if (const auto any = part.find("enum"); any != part.end() && std::find(any->begin(), any->end(), value) == any->end()) {
    return add(faults, path, shown(value), "one of " + listed(*any));  // of a member's name
  }
  if (const char* expected = rule_ ? rule_(part, text) : nullptr) add(faults, path, shown(value), expected);
}

void Schema::check_number(const Json& value, const Json& part, const std::string& path, Faults& faults) const {
  const auto refuse = [&](const char* word, const Json& limit) { add(faults, path, shown(value), word + limit.dump()); };
  if (const auto least = part.find("minimum"); least != part.end() && value < *least) refuse("at least ", *least);
  if (const auto most = part.find("maximum"); most != part.end() && value > *most) refuse("at most ", *most);
  if (const auto over = part.find("exclusiveMinimum"); over != part.end() && value <= *over) refuse("above ", *over);
  if (const auto under = part.find("exclusiveMaximum"); under != part.end() && value >= *under) refuse("below ", *under);
}

// The branch that the value's type or tag says; the schemas have no others.
void Schema::check_choice(const Json& value, const Json& part, const std::string& path, Faults& faults) const {
  if (const auto discriminator = part.find("discriminator"); discriminator != part.end()) {
    const std::string& tag = (*discriminator)["propertyName"].get_ref<const std::string&>();
    if (!value.is_object()) return add(faults, path, shown(value), "an object");
    const auto found = value.find(tag);
    if (found == value.end()) return add(faults, join_path(path, tag), "nothing", "a value: every field is required");
    const Json& mapping = (*discriminator)["mapping"];
    const auto target = found->is_string() ? mapping.find(found->get_ref<const std::string&>()) : mapping.end();
    if (target != mapping.end()) return check(value, Json{{"$ref", *target}}, path, faults);
    std::string names;
    for (const auto& [name, _] : mapping.items()) names += (names.empty() ? "'" : ", '") + name + "'";
    return add(faults, join_path(path, tag), shown(*found), "one of " + names);
  }
  std::string expected;
  for (const Json& given : part.contains("anyOf") ? part["anyOf"] : part["oneOf"]) {
    const Json& branch = resolve(given);
    const std::string& type = branch["type"].get_ref<const std::string&>();
    if (has_type(value, type)) return check(value, branch, path, faults);
    expected += (expected.empty() ? "" : " or ") + std::string(name_of_type(type));
  }
  add(faults, path, shown(value), expected);
}

}  // namespace bespoke
