// SPDX-License-Identifier: Apache-2.0
// Objects within a record are texts of the state and go out as they are: numbers in them may have more digits than a double.
#include "model/records_json.h"

#include <cmath>

#include "format/number_text.h"
#include "state/stored_text.h"

namespace bespoke {

namespace {

struct Stored {  // JSON already
  const std::string& text;
};

std::string json_of(const Stored& stored) { return stored.text; }
std::string json_of(int64_t number) { return std::to_string(number); }
std::string json_of(double number) { return std::isfinite(number) ? repr_of(number) : "null"; }
std::string json_of(bool value) { return value ? "true" : "false"; }
template <class Enum, typename = std::enable_if_t<std::is_enum_v<Enum>>, typename = decltype(name_of(Enum{}))>
std::string json_of(Enum value) {
  return json_text(name_of(value));
}
std::string json_of(Split split) { return json_text(name_of(split)); }
std::string json_of(const std::string& text) { return json_text(text); }

template <class Field>
std::string json_of(const std::optional<Field>& field) {
  return field ? json_of(*field) : "null";
}

std::string json_of(const std::vector<std::string>& texts) {
  std::string json = "[";
  for (const std::string& text : texts) json += (json.size() > 1 ? "," : "") + json_text(text);
  return json + "]";
}

std::string json_of(const std::vector<int64_t>& numbers) {
  std::string json = "[";
  for (const int64_t number : numbers) json += (json.size() > 1 ? "," : "") + std::to_string(number);
  return json + "]";
}

std::string json_of(const std::map<std::string, uint64_t>& counts) {
  std::string json = "{";
  for (const auto& [name, count] : counts) json += (json.size() > 1 ? "," : "") + json_text(name) + ":" + std::to_string(count);
  return json + "}";
}

class Object {
 public:
  template <class Field>
  void add(const char* name, const Field& field) {
    text_ += (text_.empty() ? "" : ",") + json_text(name) + ":" + json_of(field);
  }
  std::string text() const { return "{" + text_ + "}"; }

 private:
  std::string text_;
};

}  // namespace

std::string record_json(const Added& added) {
  const auto& [id, split, created] = added.example;
  const int64_t truncated_tokens = added.truncated_tokens, truncated_trained_tokens = added.truncated_trained_tokens;
  const std::map<std::string, uint64_t>& unused_keys = added.unused_keys;
  Object object;
#define BESPOKE_FIELD(name) object.add(#name, name);
#include "../../../schema/added_example.inc"
#undef BESPOKE_FIELD
  return object.text();
}

std::string record_json(const Classification& classification) {
  Object object;
#define BESPOKE_FIELD(name) object.add(#name, classification.name);
#include "../../../schema/classification.inc"
#undef BESPOKE_FIELD
  return object.text();
}

std::string record_json(const Description& description) {
  Object object;
#define BESPOKE_FIELD(name) object.add(#name, description.name);
#include "../../../schema/description.inc"
#undef BESPOKE_FIELD
  return object.text();
}

std::string record_json(const ExampleInfo& info) {
  const auto& [id, split, example, tokens, trained_tokens, rows, added_at] = info;
  const Stored json{example};
  Object object;
#define BESPOKE_FIELD(name) object.add(#name, name);
#include "../../../schema/example_info.inc"
#undef BESPOKE_FIELD
  return object.text();
}

std::string record_json(const FederationReport& report) {
  Object object;
#define BESPOKE_FIELD(name) object.add(#name, report.name);
#include "../../../schema/federation_report.inc"
#undef BESPOKE_FIELD
  return object.text();
}

std::string record_json(const FederationRequest& request) {
  Object object;
#define BESPOKE_FIELD(name) object.add(#name, request.name);
#include "../../../schema/federation_request.inc"
#undef BESPOKE_FIELD
  return object.text();
}

std::string record_json(const FederationStatus& status) {
  Object object;
#define BESPOKE_FIELD(name) object.add(#name, status.name);
#include "../../../schema/federation_status.inc"
#undef BESPOKE_FIELD
  return object.text();
}

std::string record_json(const Forgotten& forgotten) {
  Object object;
#define BESPOKE_FIELD(name) object.add(#name, forgotten.name);
#include "../../../schema/forgotten.inc"
#undef BESPOKE_FIELD
  return object.text();
}

std::string record_json(const PlannedTraining& planned) {
  Object object;
#define BESPOKE_FIELD(name) object.add(#name, planned.name);
#include "../../../schema/planned_training.inc"
#undef BESPOKE_FIELD
  return object.text();
}

std::string record_json(const Score& score) {
  Object object;
#define BESPOKE_FIELD(name) object.add(#name, score.name);
#include "../../../schema/score.inc"
#undef BESPOKE_FIELD
  return object.text();
}

std::string record_json(const StoredRun& stored) {
  const auto& [id, method, seed, settings_text, steps, started_from, step, cursor_text, ended_because, started_at, ended_at] = stored.run;
  const Stored settings{settings_text}, cursor{cursor_text};
  const std::vector<std::string>& example_ids = stored.example_ids;
  Object object;
#define BESPOKE_FIELD(name) object.add(#name, name);
#include "../../../schema/run.inc"
#undef BESPOKE_FIELD
  return object.text();
}

std::string record_json(const Version& version) {
  const auto& [id, run_id, step, metrics_text, accepted_at, source, other_text] = version;
  const Stored metrics{metrics_text};
  Object object;
#define BESPOKE_FIELD(name) object.add(#name, name);
#include "../../../schema/version.inc"
#undef BESPOKE_FIELD
  return object.text();
}

}  // namespace bespoke
