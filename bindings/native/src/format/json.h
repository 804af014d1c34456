// SPDX-License-Identifier: Apache-2.0
// JSON from outside: bounded, of one meaning only, and never in memory as a whole (sdk/bespoke/format/json_strict.py).
//
// A document is read twice: once to count (bytes, depth, items) and to see its version, once piece by piece: an element of a list or
// a member of an object at a time, each held against its part of the schema and handed on.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "enums.h"
#include "error.h"
#include "format/owned_json.h"
#include "format/plan/plan.h"
#include "format/json_schema.h"

namespace bespoke {

struct JsonRules {
  std::string subject;  // of the document's errors
  Kind kind;
  const char* next_step = "Get the file again from where it was built";
  size_t max_bytes, max_depth, max_items;
};

// Checks size, UTF-8, depth, items, numbers and grammar; returns an object with those of the top-level members `wanted` that are
// there (and small), or whatever other value the document is, without its content.
OwnedJson check_json(Bytes document, const JsonRules& rules, const std::vector<std::string>& wanted = {});

// A small document as a whole, checked in the same way; duplicate keys are refused.
OwnedJson parse_json(Bytes document, const JsonRules& rules);

// Takes a document piece by piece.
class PieceTaker {
 public:
  virtual ~PieceTaker() = default;
  virtual void open(const std::string& container) {}                                         // a walked list or object begins
  virtual void take(const std::string& container, const std::string& key, Json& value) = 0;  // may move from the value
};

// To be called after check_json. Containers whose path, with every position as "*", is in `walked` ("", "values", "sections.*") are
// walked; what is in them is one piece, which `taker` gets with its container's path and its key (or position). `schema` may be
// null. Nothing is handed on any more once `faults` has an entry; reading ends when it is full.
void read_pieces(Bytes document, const JsonRules& rules, const Schema* schema, const std::vector<std::string>& walked, Faults& faults,
                 PieceTaker& taker);

// ---- fields of records, once a schema has allowed what stands there ------------------------------------------------------------

template <typename Enum>
Enum one_of(const Json& name) {
  if (const auto value = value_named<Enum>(name.get_ref<const std::string&>())) return *value;
  throw Error(Kind::Internal, "a name", shown(name), "one that its schema has", "Report it to the authors of bespoke");
}

template <typename Field>
void read_field(const Json& value, Field& field) {
  if constexpr (std::is_enum_v<Field>)
    field = one_of<Field>(value);
  else
    field = value.get<Field>();
}

template <typename Field>
void read_field(const Json& value, std::optional<Field>& field) {
  if (value.is_null())
    field.reset();
  else
    read_field(value, field.emplace());
}

// `Document` is Json, or nlohmann's ordered_json.
template <typename Document, typename Field>
Document json_of(const Field& field) {
  if constexpr (std::is_enum_v<Field>)
    return name_of(field);
  else
    return field;
}

template <typename Document, typename Field>
Document json_of(const std::optional<Field>& field) {
  return field ? json_of<Document>(*field) : Document();
}

}  // namespace bespoke
