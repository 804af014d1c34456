// SPDX-License-Identifier: Apache-2.0
// Holds JSON values against the published schemas (bindings/schema): exactly the keywords that those use, all others are refused.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "format/owned_json.h"

namespace bespoke {

struct Fault {
  std::string path, got, expected;  // dotted: "methods.0.training.seed"
};
using Faults = std::vector<Fault>;
constexpr size_t kMostFaults = 10;  // that one error names; reading ends with the last of them

// A path as a chain on the stack: it becomes a text only where there is a fault.
struct Path {
  const Path* up;          // null: `key` is a path already
  const std::string* key;  // null: `position`
  size_t position;
  std::string text() const;
};

// What a schema cannot say of a text: null if it is right, else what is expected.
using TextRule = const char* (*)(const std::string& text);
using TextRules = TextRule (*)(const Json& part);  // the rule for texts of this part of the schema, or null

struct FormatVersion {
  int64_t major, minor;
};

class Schema {
 public:
  struct Part {  // a schema or one within it, ready to be asked
    bool takes(const Json& value) const;
    const Part* member(const std::string& key) const;  // null: no such field

    std::string type;  // empty: one of `branches`
    std::vector<const Part*> branches;
    std::string tag;  // of a branch's name in `tagged`
    std::vector<std::pair<std::string, const Part*>> properties, tagged;
    std::vector<std::pair<std::string, std::string>> later;  // properties that this document's version does not have, and why
    std::vector<std::string> required;
    const Part *items = nullptr, *more = nullptr, *names = nullptr;  // `more`: members that `properties` does not have
    Json only, minimum, maximum, above, below;                       // numbers and texts; null: no such keyword
    OwnedJson listed;                                                // likewise
    size_t least = 0, most = static_cast<size_t>(-1);                // characters, elements or members
    bool hash = false;
    TextRule rule = nullptr;
  };

  // For documents of `version`, which have no property whose x-since-minor is later. Internal error for a keyword that this reader
  // does not know.
  Schema(const unsigned char* text, unsigned long size, TextRules rules = nullptr, FormatVersion version = {0, INT64_MAX});

  const Part& root() const { return *root_; }
  const Part& definition(const std::string& name) const;

  static void check(const Json& value, const Part& part, const Path& path, Faults& faults);

  // What a reader needs beside it that walks an object or a list itself. `ended`: there are no more.
  static void check_name(const std::string& key, const Part& part, const Path& path, Faults& faults);
  static void check_size(size_t count, const Part& part, bool ended, const Path& path, Faults& faults);

 private:
  const Part* compile(const Json& part);
  const Part* compile_names(const Json& given);
  void compile_properties(const Json& given, Part& part);

  const Json* document_;
  TextRules rules_;
  FormatVersion version_;
  std::vector<std::pair<std::string, const Part*>> definitions_;
  std::vector<std::unique_ptr<Part>> parts_;
  const Part* root_;
};

std::string shown(const Json& value);  // at most 80 characters, as Python's repr() has them
std::string join_path(const std::string& path, const std::string& key);

extern const unsigned char plan_schema[], manifest_schema[], round_document_schema[];
extern const unsigned long plan_schema_size, manifest_schema_size, round_document_schema_size;

}  // namespace bespoke
