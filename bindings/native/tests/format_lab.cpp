// SPDX-License-Identifier: Apache-2.0
// The readers of the bundle's formats in the hands of a test: a request is one line of JSON and then the `size` bytes of a document,
// an answer is one line of JSON. Documents that are refused come back as the error's parts.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>

#include "format/hash.h"
#include "format/adapter/peft.h"
#include "format/adapter/read_adapter.h"
#include "format/bundle/bundle.h"
#include "format/plan/plan_check.h"

using namespace bespoke;
using Json = nlohmann::json;

namespace {

Json shape_of(const Plan& plan, uint32_t id) {
  const int64_t* shape = plan.shape(id);
  return Json(std::vector<int64_t>(shape, shape + plan.values[id].rank));
}

Json value_of(const Plan& plan, uint32_t id) {
  const Value& value = plan.values[id];
  const Json where = value.place == PlaceKind::named ? Json(plan.name(id)) : Json(value.where);
  const auto at = [](auto& names, auto index) { return names[static_cast<size_t>(index)]; };
  return {shape_of(plan, id),
          at(kDTypeNames, value.dtype),
          at(kRoleNames, value.role),
          at(kLifetimeNames, value.lifetime),
          at(kPlaceKindNames, value.place),
          where};
}

Json reference_of(const Reference& reference) {
  Json out = {reference.value};
  if (reference.rows >= 0) out.insert(out.end(), {reference.start, reference.rows});
  if (reference.scalar >= 0) out.push_back(reference.scalar);
  return out;
}

Json query_of(const Instruction::Noise& noise) { return {noise.query, noise.scalar < 0 ? Json() : Json(noise.scalar)}; }

Json instruction_of(const Plan& plan, const Instruction& i) {
  const char* op = kOpNames[static_cast<size_t>(i.op)];
  switch (i.op) {
    case Op::load:
      return {op, plan.names[i.load.group]};
    case Op::free:
      return {op, plan.names[i.free.of]};
    case Op::zero:
      return {op, i.zero.value};
    case Op::noise:
      return {op, i.noise.value, query_of(i.noise), i.noise.block, i.noise.tensor, name_of(i.noise.distribution)};
    case Op::record:
      return {op, i.record.source, i.record.value};
    case Op::store:
      return {op, plan.name(i.store.state), reference_of(plan.references[i.store.source])};
    case Op::emit:
      return {op, plan.names[i.emit.name], i.emit.source};
    case Op::receive:
      return {op, plan.names[i.receive.name], i.receive.value};
    case Op::send:
      return {op, i.send.source};
    case Op::call:
      break;
  }
  Json operands = Json::array(), results = Json::array(), adds = Json::array();
  const Instruction::Call& call = i.call;
  for (uint32_t n = 0; n < call.operands; n++) operands.push_back(reference_of(plan.references[call.first + n]));
  for (uint32_t n = 0; n < call.results; n++) {
    const Reference& result = plan.references[call.first + call.operands + n];
    results.push_back(reference_of(result));
    adds.push_back(result.how == How::add_to);
  }
  return {op, call.graph, operands, results, adds};
}

Json code_of(const Plan& plan, const std::vector<Instruction>& code) {
  Json out = Json::array();
  for (const Instruction& instruction : code) out.push_back(instruction_of(plan, instruction));
  return out;
}

Json document_of(const Plan& plan) {
  Json values = Json::array(), graphs = Json::array(), sections = Json::object();
  for (uint32_t id = 0; id < plan.values.size(); id++) values.push_back(value_of(plan, id));
  for (const GraphUse& graph : plan.graphs) graphs.push_back({graph.key, graph.name, graph.workspace_bytes});
  for (int section = 0; section < kSections; section++) {
    if (plan.has[section]) sections[kSectionNames[section]] = code_of(plan, plan.sections[section]);
  }
  return {{"method", plan.method},
          {"arena_bytes", plan.estimate.arena_bytes},
          {"scratch_bytes", plan.estimate.scratch_bytes},
          {"values", values},
          {"graphs", graphs},
          {"sections", sections},
          {"replay", code_of(plan, plan.replay)},
          {"recorded", plan.recorded}};
}

Json document_of(const Tensors& tensors, const uint8_t* begin) {
  Json out = Json::object();
  for (const auto& [name, tensor] : tensors) {
    const Bytes bytes{tensor.data, tensor.size};
    out[name] = {{"dtype", kDTypeNames[static_cast<size_t>(tensor.dtype)]},
                 {"shape", tensor.shape},
                 {"at", tensor.data - begin},
                 {"sha256", sha256_hex(bytes)}};
  }
  return out;
}

template <typename Kept>
Json maybe(const std::optional<Kept>& value) {
  return value ? Json(*value) : Json();
}

Json specs_of(const std::vector<TensorSpec>& specs) {
  Json out = Json::array();
  for (const TensorSpec& spec : specs) {
    out.push_back(
        {{"name", spec.name}, {"shape", spec.shape}, {"dtype", kDTypeNames[static_cast<size_t>(spec.dtype)]}, {"role", spec.role}});
  }
  return out;
}

Json document_of(const Estimate& e) {
  return {{"arena_bytes", e.arena_bytes},       {"workspace_bytes", e.workspace_bytes}, {"engine_bytes", e.engine_bytes},
          {"constant_bytes", e.constant_bytes}, {"step_bytes", e.step_bytes},           {"state_bytes", e.state_bytes},
          {"session_bytes", e.session_bytes},   {"scratch_bytes", e.scratch_bytes},     {"peak_bytes", e.peak_bytes},
          {"work_flops", e.work_flops}};
}

Json document_of(const PlanRecord& plan) {
  return {{"sequence_length", plan.sequence_length}, {"file", plan.file}, {"estimate", document_of(plan.estimate)}};
}

Json documents_of(const std::vector<PlanRecord>& plans) {
  Json out = Json::array();
  for (const PlanRecord& plan : plans) out.push_back(document_of(plan));
  return out;
}

// In the form of manifest.json, so that a test takes the fields from there.
Json document_of(const Manifest& m) {
  Json methods = Json::array(), weights = Json::array(), graphs = Json::array(), targets = Json::array(), files = Json::object();
  for (const Method& method : m.methods) {
    Json smaller = Json::array();
    for (const SmallerPlans& one : method.smaller)
      smaller.push_back({{"memory_bytes", one.memory_bytes}, {"plans", documents_of(one.plans)}});
    methods.push_back({{"name", method.name},
                       {"training", Json::parse(training_json(method.training))},
                       {"scalars", method.scalars},
                       {"replayable", method.replayable},
                       {"plans", documents_of(method.plans)},
                       {"smaller_plans", smaller}});
  }
  Json smaller_generation = Json::array();
  for (const SmallerPlans& one : m.smaller_generation)
    smaller_generation.push_back({{"memory_bytes", one.memory_bytes}, {"plan", document_of(one.plans.front())}});
  for (const auto& [group, file] : m.weights) weights.push_back({{"group", group}, {"file", file}});
  for (const GraphRecord& graph : m.graphs) {
    graphs.push_back({{"key", graph.key},
                      {"name", graph.name},
                      {"file", graph.file},
                      {"inputs", specs_of(graph.inputs)},
                      {"outputs", specs_of(graph.outputs)}});
  }
  for (const Target& target : m.targets) {
    Json artifacts = Json::array();
    for (const Artifact& a : target.artifacts) {
      Json baked = Json::array();
      for (const Baked& one : a.baked) {
        baked.push_back({{"operand", one.operand},
                         {"weight", one.weight},
                         {"rows", maybe(one.rows)},
                         {"columns", maybe(one.columns)},
                         {"column_start", maybe(one.column_start)}});
      }
      artifacts.push_back({{"graph", a.graph},
                           {"file", a.file},
                           {"operands", a.operands},
                           {"workspace_bytes", a.workspace_bytes},
                           {"engine_bytes", a.engine_bytes},
                           {"baked", baked},
                           {"numbers", a.numbers}});
    }
    Json features = Json::array();
    for (const Feature& one : target.features)
      features.push_back({{"tensor_dtype", one.tensor_dtype},
                          {"tensor_shape", one.tensor_shape},
                          {"dtype", one.dtype},
                          {"shape", one.shape},
                          {"view", one.view}});
    targets.push_back({{"name", target.name}, {"artifacts", artifacts}, {"features", features}});
  }
  for (const auto& [name, record] : m.files) files[name] = {{"sha256", record.sha256}, {"size", record.size}};
  return {{"model",
           {{"name", m.model_name},
            {"base_sha256", m.base_sha256},
            {"config", {{"decoder_path", m.decoder_path}, {"num_layers", m.num_layers}, {"vocab_size", m.vocab_size}}}}},
          {"lora", {{"rank", m.lora_rank}, {"alpha", m.lora_alpha}, {"linears", m.lora_linears}}},
          {"text",
           {{"tokenizer", maybe(m.text.tokenizer)},
            {"tokenizer_bin", maybe(m.text.tokenizer_bin)},
            {"turns", maybe(m.text.turns)},
            {"train_on", name_of(m.text.train_on)},
            {"bos_id", maybe(m.text.bos_id)},
            {"eos_id", maybe(m.text.eos_id)},
            {"stop_ids", m.text.stop_ids},
            {"vocab_size", m.text.vocab_size}}},
          {"context_length", m.context_length},
          {"sequence_lengths", m.sequence_lengths},
          {"budget", {{"memory_bytes", maybe(m.memory_bytes)}}},
          {"methods", methods},
          {"generation", m.generation ? document_of(*m.generation) : Json()},
          {"smaller_generation", smaller_generation},
          {"weights", weights},
          {"adapter", m.adapter},
          {"data", {{"train", maybe(m.data_train)}, {"valid", maybe(m.data_valid)}, {"behaviour", maybe(m.data_behaviour)}}},
          {"golden", maybe(m.golden)},
          {"graphs", graphs},
          {"targets", targets},
          {"files", files}};
}

DType dtype_of(const std::string& name) {
  size_t index = 0;
  while (name != kDTypeNames[index]) index++;
  return static_cast<DType>(index);
}

// Only the graphs' signatures, which is all that a plan is held against.
Manifest manifest_of(const Json& graphs) {
  Manifest manifest{};
  for (const Json& graph : graphs) {
    GraphRecord record{graph["key"].get<std::string>(), "", "", {}, {}};
    for (const bool inputs : {true, false}) {
      for (const Json& spec : graph[inputs ? "inputs" : "outputs"]) {
        (inputs ? record.inputs : record.outputs).push_back({"", spec[0].get<std::vector<int64_t>>(), dtype_of(spec[1]), ""});
      }
    }
    manifest.graphs.push_back(record);
  }
  return manifest;
}

// Opens a bundle and uses the files that it is asked to: "*" for all.
Json use_bundle(const Json& request) {
  Trust trust;
  if (request.contains("pin")) trust.pin_sha256 = request["pin"].get<std::string>();
  trust.require = request.value("require", false);
  if (request.contains("key")) trust.public_key = request["key"].get<std::array<uint8_t, 32>>();
  const auto bundle = Bundle::open(request["path"].get<std::string>(), trust);
  Json hashes = Json::object();
  std::vector<std::string> names;
  for (const auto& name : request.value("files", std::vector<std::string>{})) {
    if (name != "*")
      names.push_back(name);
    else
      for (const auto& [file, _] : bundle->manifest().files) names.push_back(file);
  }
  for (const std::string& name : names) {
    bundle->file(name);
    bundle->drop(name);
    hashes[name] = sha256_hex(bundle->file(name));
  }
  Json tensors = Json::object();
  for (const auto& name : request.value("tensors", std::vector<std::string>{}))
    tensors[name] = document_of(bundle->tensors(name), bundle->file(name).data);
  Json plans = Json::object();
  for (const auto& name : request.value("plans", std::vector<std::string>{}))
    plans[name] = document_of(read_plan(bundle->file(name), name, bundle->manifest()));
  return {{"manifest", document_of(bundle->manifest())},
          {"sha256", bundle->manifest().sha256},
          {"files", hashes},
          {"tensors", tensors},
          {"plans", plans}};
}

// Seconds for all files of a bundle to be checked and mapped, with the hashes that the file `hashes` remembers.
Json open_files(const Json& request) {
  const auto began = std::chrono::steady_clock::now();
  KnownHashes known(request["hashes"].get<std::string>());
  const auto bundle = Bundle::open(request["path"].get<std::string>());
  bundle->remember(known);
  for (const auto& [name, _] : bundle->manifest().files) bundle->file(name);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return {{"seconds", seconds}, {"saved", known.save()}};
}

// The fields of a manifest that an adapter's files are made of, and pieces of the shapes asked for, all zero.
std::pair<Manifest, Tensors> adapter_model(const Json& request) {
  static const std::vector<uint8_t> zeros(1 << 20);
  Manifest manifest{};
  manifest.model_name = request["name"].get<std::string>();
  manifest.base_sha256 = request["base"].get<std::string>();
  manifest.decoder_path = request["decoder_path"].get<std::string>();
  manifest.lora_rank = request["rank"].get<int64_t>();
  manifest.lora_alpha = request["alpha"].get<double>();
  manifest.lora_linears = request["linears"].get<std::vector<std::string>>();
  Tensors initial;
  for (const auto& [name, extents] : request["shapes"].items()) {
    const auto shape = extents.get<std::vector<int64_t>>();
    const size_t size = sizeof(float) * static_cast<size_t>(shape[0] * shape[1]);
    if (size > zeros.size())
      throw Error(Kind::Internal, "pieces", std::to_string(size) + " bytes", std::to_string(zeros.size()), "Raise it");
    initial[name] = {DType::float32, shape, zeros.data(), size};
  }
  return {manifest, initial};
}

Json read_folder(const Json& request) {
  const auto [manifest, initial] = adapter_model(request);
  Json pieces = Json::object();
  for (const auto& [name, numbers] :
       read_adapter(request["folder"].get<std::string>(), manifest, initial, request["trust_base"].get<bool>())) {
    std::string hex;
    for (const float number : numbers) {
      uint32_t bits;
      std::memcpy(&bits, &number, sizeof bits);
      char text[9];
      std::snprintf(text, sizeof text, "%08x", bits);
      hex += text;
    }
    pieces[name] = hex;
  }
  return pieces;
}

Json write_folder(const Json& request, Bytes document) {
  const auto [manifest, initial] = adapter_model(request);
  write_peft(request["folder"].get<std::string>(), read_tensors(document, "pieces", Kind::Adapter), manifest, initial);
  return {};
}

Json act(const Json& request, const std::string& document) {
  const Bytes bytes{reinterpret_cast<const uint8_t*>(document.data()), document.size()};
  const std::string what = request["do"], subject = request.value("subject", "document");
  if (what == "manifest") return document_of(read_manifest(bytes, "manifest.json"));
  if (what == "plan") return document_of(read_plan(bytes, subject, manifest_of(request["graphs"])));
  if (what == "tensors") return document_of(read_tensors(bytes, subject, Kind::Bundle), bytes.data);
  if (what == "bundle") return use_bundle(request);
  if (what == "open_files") return open_files(request);
  if (what == "read_adapter") return read_folder(request);
  if (what == "write_peft") return write_folder(request, bytes);
  if (what == "training")
    return Json::parse(training_json(override_training(training_from_json(request["base"].get<std::string>(), subject), document)));
  return {};
}

Json answer(const Json& request, const std::string& document) {
  try {
    return {{"value", act(request, document)}};
  } catch (const Error& e) {
    return {{"error", name_of(e.kind)}, {"subject", e.subject},     {"got", e.got},
            {"expected", e.expected},   {"next_step", e.next_step}, {"text", e.message}};
  }
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const Json request = Json::parse(line);
    std::string document(request.value("size", size_t{0}), '\0');
    std::cin.read(&document[0], static_cast<std::streamsize>(document.size()));
    std::cout << answer(request, document).dump(-1, ' ', true, Json::error_handler_t::replace) << std::endl;
  }
}
