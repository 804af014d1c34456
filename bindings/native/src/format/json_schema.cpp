// SPDX-License-Identifier: Apache-2.0
// Every fault of a piece is found, up to a limit, so that an error names all fields that are missing or wrong.
#include "format/json_schema.h"

#include <algorithm>
#include <cmath>

#include "error.h"
#include "format/json.h"
#include "format/untrusted_text.h"

namespace bespoke {

constexpr size_t kMostLevels = 64;  // of our own schemas

namespace {

constexpr const char* kSinceMinor = "x-since-minor";
constexpr const char* kNothing = "nothing";
constexpr const char* kRequired = "a value: every field is required";
constexpr const char* kHashPattern = "^[0-9a-f]{64}$";  // the one pattern of the schemas

bool is_hash(const std::string& text) { return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos; }

const char* name_of_type(const std::string& type) {
  if (type == "object") return "an object";
  if (type == "array") return "a list";
  if (type == "string") return "a text";
  if (type == "boolean") return "true or false";
  if (type == "integer") return "a whole number";
  return type == "number" ? "a number" : "null";
}

void add(Faults& faults, const Path& path, std::string got, std::string expected) {
  if (faults.size() < kMostFaults) faults.push_back({path.text(), std::move(got), std::move(expected)});
}

OwnedJson object_of(const char* key, const Json& value) {
  OwnedJson object = Json::object();
  (*object)[key] = value;
  return object;
}

std::string listed(const Json& values) {
  std::string out;
  for (const Json& value : values) out += (out.empty() ? "" : ", ") + shown(value);
  return out;
}

template <typename Value>
const Value* find_in(const std::vector<std::pair<std::string, Value>>& pairs, const std::string& name) {
  for (const auto& [key, value] : pairs) {
    if (key == name) return &value;
  }
  return nullptr;
}

const Schema::Part* find(const std::vector<std::pair<std::string, const Schema::Part*>>& parts, const std::string& name) {
  const Schema::Part* const* found = find_in(parts, name);
  return found ? *found : nullptr;
}

void check_text(const std::string& text, const Schema::Part& part, const Path& path, Faults& faults) {
  const auto refuse = [&](const std::string& expected) { add(faults, path, shown(text), expected); };
  if (part.least > 0 || text.size() > part.most) {
    const size_t count = count_characters(text);
    if (count > part.most) return refuse("at most " + std::to_string(part.most) + " characters");
    if (count < part.least) return refuse("at least " + std::to_string(part.least) + " characters");
  }
  if (part.hash && !is_hash(text)) return refuse("64 hexadecimal digits in lower case");
  if (!part.listed->is_null() && std::find(part.listed->begin(), part.listed->end(), text) == part.listed->end()) {
    return refuse("one of " + listed(*part.listed));
  }
  if (const char* expected = part.rule ? part.rule(text) : nullptr) refuse(expected);
}

// value < limit. The library compares a signed with an unsigned integer as signed ones, and 2^63 is a limit here.
bool less(const Json& value, const Json& limit) {
  const bool negative = value.is_number_integer() && !value.is_number_unsigned() && value < 0;
  const bool negative_limit = limit.is_number_integer() && !limit.is_number_unsigned() && limit < 0;
  const bool whole = value.is_number_integer() && limit.is_number_integer();
  if (!whole || (negative && negative_limit)) return value < limit;
  if (negative != negative_limit) return negative;
  return value.get<uint64_t>() < limit.get<uint64_t>();
}

void check_number(const Json& value, const Schema::Part& part, const Path& path, Faults& faults) {
  const auto refuse = [&](const char* word, const Json& limit) { add(faults, path, shown(value), word + limit.dump()); };
  if (!part.minimum.is_null() && less(value, part.minimum)) return refuse("at least ", part.minimum);
  if (!part.maximum.is_null() && less(part.maximum, value)) return refuse("at most ", part.maximum);
  if (!part.above.is_null() && !less(part.above, value)) return refuse("more than ", part.above);
  if (!part.below.is_null() && !less(value, part.below)) return refuse("less than ", part.below);
}

void check_members(const Json& value, const Schema::Part& part, const Path& path, Faults& faults) {
  for (auto member = value.begin(); member != value.end() && faults.size() < kMostFaults; ++member) {
    const Path inner{&path, &member.key(), 0};
    const Schema::Part* field = part.member(member.key());
    if (!field) {
      const std::string* why = find_in(part.later, member.key());
      if (why)
        add(faults, inner, "a value", *why);
      else
        add(faults, inner, shown(*member), "no such field");
      continue;
    }
    Schema::check_name(member.key(), part, path, faults);
    Schema::check(*member, *field, inner, faults);
  }
  for (const std::string& name : part.required) {
    if (!value.contains(name)) add(faults, {&path, &name, 0}, kNothing, kRequired);
  }
}

// The branch that the value's type or tag says; the schemas have no others.
void check_branches(const Json& value, const Schema::Part& part, const Path& path, Faults& faults) {
  if (part.tag.empty()) {
    std::string expected;
    for (const Schema::Part* branch : part.branches) {
      if (branch->takes(value)) return Schema::check(value, *branch, path, faults);
      expected += (expected.empty() ? "" : " or ") + std::string(name_of_type(branch->type));
    }
    // A number that no branch takes is not whole, or has more than 64 bits: the integer's branch says which.
    for (const Schema::Part* branch : part.branches)
      if (value.is_number() && branch->type == "integer") return Schema::check(value, *branch, path, faults);
    return add(faults, path, shown(value), expected);
  }
  if (!value.is_object()) return add(faults, path, shown(value), "an object");
  const Path at_tag{&path, &part.tag, 0};
  const auto name = value.find(part.tag);
  if (name == value.end()) return add(faults, at_tag, kNothing, kRequired);
  const Schema::Part* branch = name->is_string() ? find(part.tagged, name->get_ref<const std::string&>()) : nullptr;
  if (branch) return Schema::check(value, *branch, path, faults);
  std::string names;
  for (const auto& [known, _] : part.tagged) names += (names.empty() ? "'" : ", '") + known + "'";
  add(faults, at_tag, shown(*name), "one of " + names);
}

}  // namespace

std::string shown(const Json& value) {
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_string()) return in_quotes(value.get_ref<const std::string&>(), 78);
  if (value.is_object()) return "an object of " + std::to_string(value.size()) + " members";
  if (!value.is_array()) return value.dump();
  const std::string inner = value.size() > 16 ? "" : listed(value);
  return inner.size() > 78 || value.size() > 16 ? "a list of " + std::to_string(value.size()) + " elements" : "[" + inner + "]";
}

std::string join_path(const std::string& path, const std::string& key) {
  const std::string plain = in_quotes(key, 100);
  return (path.empty() ? "" : path + ".") + plain.substr(1, plain.rfind('\'') - 1);
}

std::string Path::text() const {
  if (!up) return *key;
  return join_path(up->text(), key ? *key : std::to_string(position));
}

bool Schema::Part::takes(const Json& value) const {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  return type == "integer" ? value.is_number_integer() : value.is_number();
}

const Schema::Part* Schema::Part::member(const std::string& key) const {
  const Part* found = find(properties, key);
  return found ? found : more;
}

Schema::Schema(const unsigned char* text, unsigned long size, TextRules rules, FormatVersion version) : rules_(rules), version_(version) {
  const JsonRules limits{"schema", Kind::Internal, "Report it to the authors of bespoke", size, kMostLevels, size};
  const OwnedJson owned = parse_json({text, size}, limits);
  const Json& document = *owned;
  document_ = &document;
  root_ = compile(document);
  document_ = nullptr;
}

const Schema::Part& Schema::definition(const std::string& name) const {
  const Part* found = find(definitions_, name);
  if (!found) throw Error(Kind::Internal, "schema", "no definition " + name, "one that is used", "Report it to the authors of bespoke");
  return *found;
}

const Schema::Part* Schema::compile_names(const Json& given) {
  OwnedJson part = Json(given);
  (*part)["type"] = "string";  // which a schema of names leaves out
  return compile(*part);
}

void Schema::compile_properties(const Json& given, Part& part) {
  for (const auto& [name, field] : given.items()) {
    const int64_t since = field.value(kSinceMinor, int64_t{0});
    if (since <= version_.minor) {
      part.properties.emplace_back(name, compile(field));
      continue;
    }
    const std::string major = std::to_string(version_.major) + ".";
    part.later.emplace_back(name, "nothing: format " + major + std::to_string(version_.minor) + " does not have it (it came with " + major +
                                      std::to_string(since) + ")");
  }
}

const Schema::Part* Schema::compile(const Json& given) {
  if (given.contains("$ref")) {  // "#/$defs/Name"
    const std::string& target = given["$ref"].get_ref<const std::string&>();
    const std::string name = target.substr(target.rfind('/') + 1);
    if (const Part* known = find(definitions_, name)) return known;
    const Part* made = compile(document_->at("$defs").at(name));
    definitions_.emplace_back(name, made);
    return made;
  }
  parts_.push_back(std::make_unique<Part>());
  Part& part = *parts_.back();
  for (const auto& [word, value] : given.items()) {
    if (word == "type")
      part.type = value.get<std::string>();
    else if (word == "properties")
      compile_properties(value, part);
    else if (word == "required")
      part.required = value.get<std::vector<std::string>>();
    else if (word == "additionalProperties")
      part.more = value.is_object() ? compile(value) : nullptr;
    else if (word == "propertyNames")
      part.names = compile_names(value);
    else if (word == "items")
      part.items = compile(value);
    else if (word == "anyOf" || word == "oneOf")
      for (const Json& branch : value) part.branches.push_back(compile(branch));
    else if (word == "discriminator") {
      part.tag = value["propertyName"].get<std::string>();
      for (const auto& [name, target] : value["mapping"].items()) part.tagged.emplace_back(name, compile(*object_of("$ref", target)));
    } else if (word == "const")
      part.only = value;
    else if (word == "enum")
      *part.listed = value;
    else if (word == "minimum")
      part.minimum = value;
    else if (word == "maximum")
      part.maximum = value;
    else if (word == "exclusiveMinimum")
      part.above = value;
    else if (word == "exclusiveMaximum")
      part.below = value;
    else if (word == "minItems" || word == "minLength")
      part.least = value.get<size_t>();
    else if (word == "maxItems" || word == "maxLength" || word == "maxProperties")
      part.most = value.get<size_t>();
    else if (word == "pattern" && is_text(value, kHashPattern))
      part.hash = true;
    else if (word != "title" && word != "description" && word != "$defs" && word != kSinceMinor) {
      throw Error(Kind::Internal, "schema", "the keyword " + word + " " + value.dump().substr(0, 80), "one that the core knows",
                  "Report it to the authors of bespoke");
    }
  }
  const auto is_later = [&](const std::string& name) { return find_in(part.later, name) != nullptr; };
  part.required.erase(std::remove_if(part.required.begin(), part.required.end(), is_later), part.required.end());
  if (rules_ && part.type == "string") part.rule = rules_(given);
  if (rules_ && part.more && !part.names) part.names = compile(*object_of("type", "string"));
  return &part;
}

void Schema::check_name(const std::string& key, const Part& part, const Path& path, Faults& faults) {
  if (part.names && !find(part.properties, key)) check_text(key, *part.names, {&path, &key, 0}, faults);
}

void Schema::check_size(size_t count, const Part& part, bool ended, const Path& path, Faults& faults) {
  const char* of = part.type == "object" ? " members" : " elements";
  if (count > part.most) add(faults, path, std::to_string(count) + of, "at most " + std::to_string(part.most));
  if (ended && count < part.least) add(faults, path, std::to_string(count) + of, "at least " + std::to_string(part.least));
}

void Schema::check(const Json& value, const Part& part, const Path& path, Faults& faults) {
  if (!part.branches.empty()) return check_branches(value, part, path, faults);
  if (!part.takes(value)) {
    // An integer of more than 64 bits is read as a floating-point number: its size is what is wrong with it.
    const size_t before = faults.size();
    if (part.type == "integer" && value.is_number_float() && std::abs(value.get<double>()) >= 0x1p63)
      check_number(value, part, path, faults);
    if (faults.size() == before) add(faults, path, shown(value), name_of_type(part.type));
    return;
  }
  if (!part.only.is_null() && value != part.only) return add(faults, path, shown(value), shown(part.only));
  if (value.is_string()) return check_text(value.get_ref<const std::string&>(), part, path, faults);
  if (value.is_number()) return check_number(value, part, path, faults);
  if (!value.is_structured()) return;
  check_size(value.size(), part, true, path, faults);
  if (value.is_object()) return check_members(value, part, path, faults);
  for (size_t i = 0; part.items && i < value.size() && faults.size() < kMostFaults; i++) {
    check(value[i], *part.items, {&path, nullptr, i}, faults);
  }
}

}  // namespace bespoke
