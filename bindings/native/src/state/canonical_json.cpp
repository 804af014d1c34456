// SPDX-License-Identifier: Apache-2.0
#include "state/canonical_json.h"

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "error.h"
#include "format/number_text.h"
#include "format/untrusted_text.h"
#include "state/stored_text.h"

namespace bespoke {

namespace {

using Json = nlohmann::json;

constexpr size_t kMostLevels = 100;  // the text of a value is copied once for each level that it lies in

// Puts the text together from the inside out. A tree of nlohmann's would not do: it rounds integers of more than 64 bits.
class Canonical : public nlohmann::json_sax<Json> {
 public:
  Canonical(const std::string& json, const std::string& subject) : json_(json), subject_(subject) {}

  std::string take() { return std::move(text_); }

  bool null() override { return put("null", "null"); }
  bool boolean(bool value) override { return put(value ? "true" : "false", "a boolean"); }
  bool number_integer(int64_t value) override { return put(std::to_string(value), "a number"); }
  bool number_unsigned(uint64_t value) override { return put(std::to_string(value), "a number"); }
  bool number_float(double value, const std::string& digits) override {
    const bool is_integer = digits.find_first_of(".eE") == std::string::npos;  // of more than 64 bits
    return put(is_integer ? digits : repr_of(value), "a number");
  }
  bool string(std::string& value) override { return put(quoted(value), "a string"); }
  bool binary(Json::binary_t&) override { return false; }
  bool start_object(size_t) override { return open(true); }
  bool start_array(size_t) override { return open_.empty() ? refuse_kind("a list") : open(false); }

  bool key(std::string& name) override {
    Open& around = open_.back();
    if (around.members.count(name)) refuse("the key " + in_quotes(name) + " twice", "each key once", "Remove one of the two");
    around.name = name;
    return true;
  }

  bool end_object() override {
    std::string text = "{";
    for (const auto& [name, value] : open_.back().members) text += (text.size() > 1 ? "," : "") + quoted(name) + ":" + value;
    open_.pop_back();
    return put(text + "}", "");
  }

  bool end_array() override {
    std::string text = "[" + open_.back().elements + "]";
    open_.pop_back();
    return put(std::move(text), "");
  }

  bool parse_error(size_t position, const std::string& token, const nlohmann::detail::exception& problem) override {
    const auto stands_at = [&](size_t at, const char* word) { return at < json_.size() && json_.compare(at, strlen(word), word) == 0; };
    const size_t at = position ? position - 1 : 0;
    if (problem.id == 406 || stands_at(at, "NaN") || stands_at(at, "Infinity")) refuse_content("a number that is not finite");
    if (strstr(problem.what(), "surrogate")) refuse_content("half of a surrogate pair");
    refuse_content("text that is not JSON (near byte " + std::to_string(position) + ")");
  }

 private:
  struct Open {
    bool object;
    std::map<std::string, std::string> members;  // texts of the values, sorted by their keys' characters
    std::string name;                            // of the member that comes next
    std::string elements;
  };

  [[noreturn]] void refuse(const std::string& got, const std::string& expected, const std::string& next_step) {
    throw Error(Kind::Data, subject_, got, expected, next_step);
  }

  [[noreturn]] void refuse_content(const std::string& got) {
    refuse(got, "what JSON can hold", "Use text, finite numbers, lists and objects");
  }

  bool refuse_kind(const std::string& got) { refuse(got, "a JSON object", "Pass an object"); }

  bool open(bool object) {
    if (open_.size() == kMostLevels) refuse_content("lists or objects nested too deeply");
    open_.push_back({object, {}, "", ""});
    return true;
  }

  // A value of some kind (which is said where it is the whole text), or a container that ends.
  bool put(std::string text, const char* kind) {
    if (open_.empty()) {
      if (*kind) refuse_kind(kind);
      text_ = std::move(text);
      return true;
    }
    Open& around = open_.back();
    if (around.object) {
      around.members[std::move(around.name)] = std::move(text);
    } else {
      if (!around.elements.empty()) around.elements += ',';
      around.elements += text;
    }
    return true;
  }

  static std::string quoted(const std::string& value) { return Json(value).dump(); }

  const std::string& json_;
  const std::string& subject_;
  std::vector<Open> open_;
  std::string text_;
};

}  // namespace

std::string canonical_json(const std::string& json, const std::string& subject) {
  Canonical canonical(json, subject);
  Json::sax_parse(json, &canonical);
  return canonical.take();
}

}  // namespace bespoke
