// SPDX-License-Identifier: Apache-2.0
// Settings of a run: out of the manifest, out of a user's overrides, out of the state; always held against the schema.
#include "format/json.h"
#include "format/bundle/manifest_check.h"
#include "format/untrusted_text.h"

namespace bespoke {

namespace {

Json document_of(const Training& training) {
  Json document;
#define BESPOKE_FIELD(name, type) document[#name] = json_of<Json>(training.name);
#define BESPOKE_LATER_FIELD(name, type, meant) BESPOKE_FIELD(name, type)
#include "../../../../schema/training.inc"
#undef BESPOKE_LATER_FIELD
#undef BESPOKE_FIELD
  return document;
}

// Of settings that were kept before these fields were there: of a run that goes on with a newer version.
void add_what_was_meant(Json& document) {
  const Training before{
#define BESPOKE_FIELD(name, type) {},
#define BESPOKE_LATER_FIELD(name, type, meant) meant,
#include "../../../../schema/training.inc"
#undef BESPOKE_LATER_FIELD
#undef BESPOKE_FIELD
  };
#define BESPOKE_FIELD(name, type)
#define BESPOKE_LATER_FIELD(name, type, meant) \
  if (!document.contains(#name)) document[#name] = json_of<Json>(before.name);
#include "../../../../schema/training.inc"
#undef BESPOKE_LATER_FIELD
#undef BESPOKE_FIELD
}

JsonRules rules_of(const std::string& subject, Kind kind) {
  return {subject, kind, "Correct it and run again", kMostTrainingBytes, 4, 1000};
}

// Every problem is named in one error.
Training checked(const Json& document, const std::string& subject, Kind kind) {
  const Schema schema(manifest_schema, manifest_schema_size);
  Faults faults;
  const Schema::Part& part = schema.definition("Training");
  schema.check(document, part, {nullptr, &subject, 0}, faults);
  if (faults.empty()) return training_of(document);
  std::string fields;
  for (const auto& [name, _] : part.properties) fields += (fields.empty() ? "" : ", ") + name;
  Wording paths, problems;
  for (Fault& fault : faults) {
    const bool unknown = fault.expected == "no such field";
    const Error error(kind, setting(fault.path), fault.got, unknown ? "one of the fields " + fields : fault.expected,
                      unknown ? Wording("Remove it or correct its name") : "Change " + setting(fault.path));
    if (faults.size() == 1) throw error;
    paths = paths + (paths.empty() ? "" : ", ") + setting(fault.path);
    problems = problems + (problems.empty() ? "" : " ") + error.subject + ": got " + error.got + "; expected " + error.expected + ". " +
               error.next_step + ".";
  }
  throw Error(kind, std::to_string(faults.size()) + " settings (" + paths + ")", problems, "settings without these problems",
              "Fix them and run again");
}

}  // namespace

Training training_of(const Json& record) {
  Training training;
#define BESPOKE_FIELD(name, type) read_field(record.at(#name), training.name);
#define BESPOKE_LATER_FIELD(name, type, meant) \
  if (record.contains(#name)) BESPOKE_FIELD(name, type) else training.name = meant;
#include "../../../../schema/training.inc"
#undef BESPOKE_LATER_FIELD
#undef BESPOKE_FIELD
  return training;
}

Training override_training(const Training& base, const std::string& overrides) {
  const JsonRules rules = rules_of("train", Kind::Config);
  const OwnedJson owned = parse_json(bytes_of(overrides), rules);
  const Json& given = *owned;
  if (!given.is_object()) throw Error(Kind::Config, "train", shown(given), "an object of settings", rules.next_step);
  Json document = document_of(base);
  for (const auto& [name, value] : given.items()) document[name] = value;
  return checked(document, "train", Kind::Config);
}

std::string training_json(const Training& training) { return document_of(training).dump(); }

Training training_from_json(const std::string& text, const std::string& subject) {
  const JsonRules rules = rules_of(subject, Kind::State);
  const OwnedJson owned = parse_json(bytes_of(text), rules);
  Json document = *owned;
  if (document.is_object()) add_what_was_meant(document);
  return checked(document, subject, Kind::State);
}

}  // namespace bespoke
