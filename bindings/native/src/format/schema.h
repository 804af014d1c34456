// SPDX-License-Identifier: Apache-2.0
// Holds JSON values against the published schemas (bindings/schema): exactly the keywords that those use, all others are refused.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace bespoke {

struct Fault {
  std::string path, got, expected;  // dotted: "methods.0.training.seed"
};
using Faults = std::vector<Fault>;
constexpr size_t kMostFaults = 10;  // that one error names; reading ends with the last of them

// What a schema cannot say of a text: null if it is right, else what is expected. `key`: it is a member's name.
using TextRule = std::function<const char*(const nlohmann::json& schema, const std::string& text)>;

class Schema {
 public:
  explicit Schema(const unsigned char* text, unsigned long size, TextRule rule = nullptr);

  const nlohmann::json& root() const { return document_; }
  const nlohmann::json& definition(const char* name) const { return document_.at("$defs").at(name); }
  const nlohmann::json& resolve(const nlohmann::json& part) const;  // follows $ref

  void check(const nlohmann::json& value, const nlohmann::json& part, const std::string& path, Faults& faults) const;

  // The parts of `check` that a reader needs which walks an object or a list itself.
  const nlohmann::json* member(const nlohmann::json& part, const std::string& key, const std::string& path, Faults& faults) const;
  void check_size(const nlohmann::json& part, size_t count, bool object, bool ended, const std::string& path, Faults& faults) const;

  // Keywords of the schema that this reader does not know.
  std::vector<std::string> unknown_keywords() const;

 private:
  void check_text(const nlohmann::json& value, const nlohmann::json& part, const std::string& path, Faults& faults) const;
  void check_number(const nlohmann::json& value, const nlohmann::json& part, const std::string& path, Faults& faults) const;
  void check_choice(const nlohmann::json& value, const nlohmann::json& part, const std::string& path, Faults& faults) const;

  nlohmann::json document_;
  TextRule rule_;
};

std::string shown(const nlohmann::json& value);  // at most 80 characters, as Python's repr() has them
std::string join_path(const std::string& path, const std::string& key);

extern const unsigned char plan_schema[], manifest_schema[];
extern const unsigned long plan_schema_size, manifest_schema_size;

}  // namespace bespoke
