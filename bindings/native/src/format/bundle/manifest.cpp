// SPDX-License-Identifier: Apache-2.0
// Reads manifest.json piece by piece into what the core keeps of it; every field is checked, those of no use here are dropped.
#include "format/bundle/manifest.h"

#include <algorithm>

#include "format/bundle/bundle.h"
#include "format/hash.h"
#include "format/json.h"
#include "format/bundle/manifest_check.h"
#include "format/untrusted_text.h"

namespace bespoke {

namespace {

constexpr const char* kNextStep = "Get the bundle again from where it was built, or build it again";
constexpr const char* kFormat = "bespoke-bundle";
constexpr int64_t kMajor = 1, kMinor = 8;

const char* printable(const std::string& text) { return is_printable(text) ? nullptr : "a text without control characters"; }

const char* file_name(const std::string& text) {
  return file_name_problem(text) ? "a plain relative name: letters, digits and _.@+=-, at most 255 characters and 8 folders" : nullptr;
}

// A text of up to 256 characters is a name, one without any limit names a file: what the models say and the schema does not.
TextRule text_rule(const Json& part) {
  if (part.contains("pattern") || part.contains("enum") || part.contains("const")) return nullptr;
  const auto most = part.find("maxLength");
  if (most == part.end()) return file_name;
  return *most == 256 ? printable : nullptr;
}

int64_t whole(const Json& version, const char* part, const std::string& subject) {
  const Json number = version.is_object() ? version.value(part, Json()) : version;
  if (number.is_number_integer()) return number.get<int64_t>();
  refuse_manifest(subject, std::string("format_version.") + part, number.is_null() ? "nothing" : shown(number), "a whole number");
}

FormatVersion check_version(const Json& found, const std::string& subject) {
  if (!found.is_object()) refuse_manifest(subject, "", found.is_null() ? "NoneType" : found.type_name(), "an object");
  for (const char* field : {"format", "format_version"}) {
    if (!found.contains(field)) refuse_manifest(subject, field, "nothing", "a value: every field is required");
  }
  if (!is_text(found["format"], kFormat)) refuse_manifest(subject, "format", shown(found["format"]), in_quotes(kFormat));
  const int64_t major = whole(found["format_version"], "major", subject), minor = whole(found["format_version"], "minor", subject);
  if (major == kMajor && minor >= 0 && minor <= kMinor) return {major, minor};
  throw Error(Kind::BundleVersion, subject + ": format_version", std::to_string(major) + "." + std::to_string(minor),
              "1.0 to " + std::to_string(kMajor) + "." + std::to_string(kMinor),
              "Update bespoke-sdk in the app, or build the bundle with the version that the app has");
}

[[noreturn]] void refuse_faults(const Faults& faults, const std::string& subject) {
  if (faults.size() == 1) refuse_manifest(subject, faults[0].path, faults[0].got, faults[0].expected);
  std::string paths, got, expected;
  for (const Fault& fault : faults) {
    const char* comma = paths.empty() ? "" : ", ";
    const char* semicolon = paths.empty() ? "" : "; ";
    paths += comma + fault.path;
    got += semicolon + fault.path + " = " + fault.got;
    expected += semicolon + fault.path + ": " + fault.expected;
  }
  refuse_manifest(subject, std::to_string(faults.size()) + " fields, " + paths, got, expected);
}

// ---- pieces ------------------------------------------------------------------------------------------------------------

template <typename Number>
std::vector<Number> numbers(const Json& list) {
  std::vector<Number> out;
  out.reserve(list.size());
  for (const Json& number : list) out.push_back(number.get<Number>());
  return out;
}

std::vector<std::string> texts(Json& list) {
  std::vector<std::string> out;
  out.reserve(list.size());
  for (Json& text : list) out.push_back(std::move(text.get_ref<std::string&>()));
  return out;
}

std::string text(Json& holder, const char* field) { return std::move(holder[field].get_ref<std::string&>()); }

template <typename Kept>
std::optional<Kept> unless_null(const Json& value) {
  return value.is_null() ? std::nullopt : std::optional<Kept>(value.get<Kept>());
}

std::vector<TensorSpec> specs(Json& list) {
  std::vector<TensorSpec> out;
  out.reserve(list.size());
  for (Json& spec : list) {
    out.push_back({text(spec, "name"), numbers<int64_t>(spec["shape"]), one_of<DType>(spec["dtype"]), text(spec, "role")});
  }
  return out;
}

GraphRecord graph_record(Json& graph) {
  return {text(graph, "key"), text(graph, "name"), text(graph, "file"), specs(graph["inputs"]), specs(graph["outputs"])};
}

std::optional<std::pair<int64_t, int64_t>> range(const Json& value) {
  if (value.is_null()) return std::nullopt;
  return std::make_pair(value[0].get<int64_t>(), value[1].get<int64_t>());
}

std::vector<Baked> baked(Json& list) {
  std::vector<Baked> out;
  out.reserve(list.size());
  for (Json& one : list) {
    out.push_back(
        {text(one, "operand"), text(one, "weight"), range(one["rows"]), range(one["columns"]), unless_null<int64_t>(one["column_start"])});
  }
  return out;
}

std::vector<Feature> features(Json& list) {
  std::vector<Feature> out;
  out.reserve(list.size());
  for (Json& one : list) {
    out.push_back({text(one, "tensor_dtype"), text(one, "dtype"), text(one, "view"), numbers<int64_t>(one["tensor_shape"]),
                   numbers<int64_t>(one["shape"])});
  }
  return out;
}

Target target(Json& record) {
  Target out{text(record, "name"), record["options"].dump(), {}, {}};
  out.artifacts.reserve(record["artifacts"].size());
  for (Json& artifact : record["artifacts"]) {
    out.artifacts.push_back({text(artifact, "graph"),
                             text(artifact, "file"),
                             texts(artifact["operands"]),
                             artifact["workspace_bytes"].get<uint64_t>(),
                             artifact["engine_bytes"].get<uint64_t>(),
                             {},
                             {}});
    if (artifact.contains("baked")) out.artifacts.back().baked = baked(artifact["baked"]);
    if (!artifact.contains("numbers")) continue;
    for (const auto& [name, number] : artifact["numbers"].items()) out.artifacts.back().numbers[name] = number.get<int64_t>();
  }
  if (record.contains("features")) out.features = features(record["features"]);
  return out;
}

PlanRecord plan_record(Json& record) {
  return {record["sequence_length"].get<int64_t>(), text(record, "file"), estimate_of(record["estimate"])};
}

std::vector<PlanRecord> plan_records(Json& list) {
  std::vector<PlanRecord> out;
  out.reserve(list.size());
  for (Json& plan : list) out.push_back(plan_record(plan));
  return out;
}

Method method_record(Json& record) {
  Method out{text(record, "name"), training_of(record["training"]), record["options"].dump(), {}, record["replayable"].get<bool>(), {}, {}};
  for (const auto& [name, number] : record["scalars"].items()) out.scalars[name] = number.get<double>();
  out.plans = plan_records(record["plans"]);
  if (!record.contains("smaller_plans")) return out;
  for (Json& smaller : record["smaller_plans"])
    out.smaller.push_back({smaller["memory_bytes"].get<uint64_t>(), plan_records(smaller["plans"])});
  return out;
}

// Takes the pieces of the document; `named` are the files that fields name which the core has no use for.
class ManifestPieces : public PieceTaker {
 public:
  ManifestPieces(Manifest& manifest, std::vector<std::string>& named) : m_(manifest), named_(named) {}

  void take(const std::string& container, const std::string& key, Json& value) override {
    if (container == "graphs")
      m_.graphs.push_back(graph_record(value));
    else if (container == "targets")
      m_.targets.push_back(target(value));
    else if (container == "methods")
      m_.methods.push_back(method_record(value));
    else if (container == "files")
      m_.files[key] = {text(value, "sha256"), value["size"].get<uint64_t>()};
    else if (container == "weights")
      take_weights(value);
    else if (container == "smaller_generation")
      m_.smaller_generation.push_back({value["memory_bytes"].get<uint64_t>(), {plan_record(value["plan"])}});
    else
      take_top(key, value);
  }

 private:
  void take_weights(Json& value) {
    const auto [place, is_new] = m_.weights.emplace(text(value, "group"), text(value, "file"));
    if (!is_new && twice.empty()) twice = place->first;
  }

  void take_top(const std::string& key, Json& value) {
    if (key == "model") {
      m_.model_name = text(value, "name");
      m_.licence = text(value, "licence");
      m_.base_sha256 = text(value, "base_sha256");
      m_.decoder_path = text(value["config"], "decoder_path");
      m_.family = text(value["config"], "family");
      m_.num_layers = value["config"]["num_layers"].get<int64_t>();
      m_.num_heads = value["config"]["num_heads"].get<int64_t>();
      m_.num_kv_heads = value["config"]["num_kv_heads"].get<int64_t>();
      m_.vocab_size = value["config"]["vocab_size"].get<int64_t>();
    } else if (key == "lora") {
      m_.lora_rank = value["rank"].get<int64_t>();
      m_.lora_alpha = value["alpha"].get<double>();
      m_.lora_linears = texts(value["linears"]);
      m_.lora_trains_a = value.value("train", "both") == "both";
    } else if (key == "context_length") {
      m_.context_length = value.get<int64_t>();
    } else if (key == "sequence_lengths") {
      m_.sequence_lengths = numbers<int64_t>(value);
    } else if (key == "budget") {
      m_.memory_bytes = unless_null<uint64_t>(value["memory_bytes"]);
    } else if (key == "adapter") {
      m_.adapter = value.get<std::string>();
    } else if (key == "generation") {
      if (!value.is_null()) m_.generation = plan_record(value);
    } else if (key == "federation") {
      if (!value.is_null())
        m_.federation = FederationRecord{text(value, "task"),
                                         text(value, "server_key"),
                                         text(value, "method"),
                                         value["seed"].get<int64_t>(),
                                         value["clip"].get<double>(),
                                         value["noise"].get<double>(),
                                         unless_null<double>(value["budget"])};
    } else if (key == "golden") {
      m_.golden = unless_null<std::string>(value);
    } else if (key == "data") {
      m_.data_train = unless_null<std::string>(value["train"]);
      m_.data_valid = unless_null<std::string>(value["valid"]);
      m_.data_behaviour = unless_null<std::string>(value.value("behaviour", Json()));
    } else if (key == "licences") {
      for (Json& name : value) named_.push_back(name.get<std::string>());
    } else if (key == "text") {
      take_text(value);
    }
  }

  void take_text(const Json& value) {
    const Json& bin = value.value("tokenizer_bin", Json());
    m_.text = {unless_null<std::string>(value["tokenizer"]), unless_null<std::string>(bin),
               unless_null<std::string>(value["turns"]),     one_of<TrainOn>(value["train_on"]),
               unless_null<int64_t>(value["bos_id"]),        unless_null<int64_t>(value["eos_id"]),
               numbers<int64_t>(value["stop_ids"]),          value["vocab_size"].get<int64_t>()};
    for (const Json* file : {&value["tokenizer"], &value["tokenizer_config"], &bin, &value["turns"]}) {
      if (!file->is_null()) named_.push_back(file->get<std::string>());
    }
  }

  Manifest& m_;
  std::vector<std::string>& named_;

 public:
  std::string twice;  // a weight group
};

}  // namespace

Estimate estimate_of(const Json& record) {
  const auto bytes = [&](const char* name) { return record.at(name).get<uint64_t>(); };
  return {bytes("arena_bytes"), bytes("workspace_bytes"), bytes("engine_bytes"),  bytes("constant_bytes"), bytes("step_bytes"),
          bytes("state_bytes"), bytes("session_bytes"),   bytes("scratch_bytes"), bytes("peak_bytes"),     bytes("work_flops")};
}

void refuse_manifest(const std::string& subject, const std::string& path, const std::string& got, const std::string& expected) {
  throw Error(Kind::Bundle, path.empty() ? subject : subject + ": " + path, got, expected, kNextStep);
}

const GraphRecord* Manifest::graph(const std::string& key) const {
  for (const GraphRecord& record : graphs) {
    if (record.key == key) return &record;
  }
  return nullptr;
}

Method Method::by(const SmallerPlans& others) const {
  Method same = *this;
  same.plans = others.plans;
  return same;
}

uint64_t peak_of(const std::vector<PlanRecord>& plans) {
  uint64_t peak = 0;
  for (const PlanRecord& plan : plans) peak = std::max(peak, plan.estimate.peak_bytes);
  return peak;
}

const Method& Manifest::method(const std::string& name) const {
  if (methods.empty())
    throw Error(Kind::Config, setting("method"), "a bundle without methods, which answers and does not train", "a bundle with a method",
                "Build it again with an optimizer");
  if (name.empty()) return methods.front();
  std::string known;
  for (const Method& record : methods) {
    if (record.name == name) return record;
    known += (known.empty() ? "" : ", ") + record.name;
  }
  throw Error(Kind::Config, setting("method"), in_quotes(name), "one of " + known, "Name a method of the bundle");
}

Manifest read_manifest(Bytes document, const std::string& subject) {
  const JsonRules rules{subject,      Kind::Bundle,      "Get the file again from where it was built",
                        kMaxManifest, kMaxManifestDepth, kMaxManifestItems};
  const FormatVersion version = check_version(*check_json(document, rules, {"format", "format_version"}), subject);
  const Schema schema(manifest_schema, manifest_schema_size, text_rule, version);
  Manifest manifest{};
  manifest.minor = version.minor;
  std::vector<std::string> named;
  ManifestPieces pieces(manifest, named);
  Faults faults;
  read_pieces(document, rules, &schema, {"", "graphs", "targets", "methods", "weights", "files", "smaller_generation"}, faults, pieces);
  if (!faults.empty()) refuse_faults(faults, subject);
  manifest.sha256 = sha256_hex(document);
  if (!pieces.twice.empty()) refuse_manifest(subject, "weights", in_quotes(pieces.twice) + " twice", "each of them once");
  check_manifest(manifest, named, subject);
  manifest.graphs.shrink_to_fit();
  manifest.targets.shrink_to_fit();
  manifest.methods.shrink_to_fit();
  return manifest;
}

}  // namespace bespoke
