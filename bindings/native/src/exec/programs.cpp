// SPDX-License-Identifier: Apache-2.0
#include "exec/programs.h"

#include <algorithm>
#include <optional>

#include "format/untrusted_text.h"
#include "platform/mapping.h"

namespace bespoke {
namespace {

constexpr size_t kMessage = 1024;  // what a system says of libraries that it cannot load is long
constexpr size_t kShownOptions = 200;

// What an engine's code says of the device, where nothing is wrong with the artifact.
struct Lacking {
  int code;
  Kind kind;
  const char *expected, *next_step;
};
constexpr Lacking kLacking[] = {
    {BESPOKE_ENGINE_DISK_FULL, Kind::DiskFull, "room on the disk", "Free some space and call again: nothing is damaged"},
    {BESPOKE_ENGINE_MISSING_DEPENDENCY, Kind::MissingDependency, "the libraries", "Bring them along, where the process finds them"},
    {BESPOKE_ENGINE_UNAVAILABLE, Kind::Unavailable, "a device", "Fix that and call again: nothing is damaged"}};

// Whether an engine that failed without saying why (XNNPACK does) could have had what it asks for: twice what it keeps, while that
// grows, and structures about as large as the artifact.
bool room_for(const Artifact& artifact, size_t artifact_size) {
  return can_map(2 * artifact.engine_bytes + artifact_size + (size_t{1} << 20));
}

void refuse_without_memory(int failed, const Program& program, size_t artifact_size, const char* message) {
  if (failed == BESPOKE_ENGINE_NO_MEMORY || (failed && !room_for(program.artifact, artifact_size)))
    throw Error(Kind::Budget, "graph '" + program.graph.name + "'", message, "room within the limit that the system sets",
                "Raise the limit or use a bundle built for a smaller budget");
}

std::vector<bespoke_tensor> tensors_of(const std::vector<TensorSpec>& specs) {
  std::vector<bespoke_tensor> tensors;
  for (const TensorSpec& spec : specs)
    tensors.push_back({sizeof(bespoke_tensor), spec.name.c_str(), spec.shape.data(), static_cast<int32_t>(spec.shape.size()),
                       static_cast<bespoke_dtype>(spec.dtype), nullptr, 0, nullptr});
  return tensors;
}

// What an engine that runs graphs is handed: the exported program, which takes all operands.
Artifact exported(const GraphRecord& graph) {
  Artifact whole{graph.key, graph.file, {}, 0, 0, {}, {}};
  for (const TensorSpec& spec : graph.inputs) whole.operands.push_back(spec.name);
  return whole;
}

// ---- weights that are part of artifacts: a call is told by those that it gives -------------------------------------------------

// Of the operands of a call, the one that the graph has under this name.
const Reference& operand(const GraphRecord& graph, const Reference* operands, const std::string& name) {
  size_t number = 0;
  while (graph.inputs[number].name != name) number++;  // the manifest's check has found it
  return operands[number];
}

std::optional<std::pair<int64_t, int64_t>> rows_of(const Reference& reference) {
  if (reference.rows < 0) return std::nullopt;
  return std::pair<int64_t, int64_t>(reference.start, int64_t{reference.start} + reference.rows);
}

bool has_baked(const Artifact& artifact, const GraphRecord& graph, const Plan& plan, const Reference* operands) {
  for (const Baked& baked : artifact.baked) {
    const Reference& given = operand(graph, operands, baked.operand);
    const Value& value = plan.values[given.value];
    if (value.role != Role::weight || value.place != PlaceKind::named || plan.name(given.value) != baked.weight) return false;
    if (given.scalar >= 0 || rows_of(given) != baked.rows) return false;
  }
  for (const auto& [name, number] : artifact.numbers) {
    const Value& value = plan.values[operand(graph, operands, name).value];
    if (value.place != PlaceKind::number || value.where != number) return false;
  }
  // A bundle of before format 1.4 does not say which numbers an artifact was made for.
  return artifact.operands.size() + artifact.baked.size() + artifact.numbers.size() == graph.inputs.size();
}

// What a call gives in the place of what is baked into an artifact of its graph.
std::string shown_baked(const Artifact& artifact, const GraphRecord& graph, const Plan& plan, const Reference* operands) {
  std::string shown;
  for (const Baked& baked : artifact.baked) {
    const Reference& given = operand(graph, operands, baked.operand);
    const auto rows = rows_of(given);
    shown += (shown.empty() ? "" : ", ") + (plan.values[given.value].place == PlaceKind::named ? plan.name(given.value) : baked.operand);
    if (rows) shown += " rows " + std::to_string(rows->first) + " to " + std::to_string(rows->second);
  }
  for (const auto& [name, _] : artifact.numbers) {
    const Value& value = plan.values[operand(graph, operands, name).value];
    if (value.place == PlaceKind::number) shown += ", " + name + " " + std::to_string(value.where);
  }
  return shown;
}

}  // namespace

Program::Program(const GraphRecord& graph, const Artifact& artifact)
    : graph(graph), artifact(artifact), inputs(tensors_of(graph.inputs)), outputs(tensors_of(graph.outputs)) {
  for (const std::string& name : artifact.operands)
    operands.push_back(&*std::find_if(inputs.begin(), inputs.end(), [&](const bespoke_tensor& input) { return name == input.name; }));
  for (const bespoke_tensor& output : outputs) results.push_back(&output);
}

Programs::Programs(Bundle& bundle, const Engine& engine, EngineMemory& memory)
    : bundle_(bundle), engine_(engine), table_(engine.table()), memory_(memory) {
  if (table_.runs_graphs) return;
  std::string there;
  for (const Target& target : bundle.manifest().targets) {
    if (target.name == table_.target) target_ = &target;
    there += (there.empty() ? "" : ", ") + target.name;
  }
  if (!target_)
    throw Error(Kind::Bundle, std::string("target '") + table_.target + "'", "a bundle for " + there,
                "a bundle for the engine that runs it", "Build the bundle with " + setting("targets", table_.target));
  for (const Artifact& artifact : target_->artifacts) workspace_bytes_ = std::max<size_t>(workspace_bytes_, artifact.workspace_bytes);
}

Programs::~Programs() { close_all(); }

std::vector<Program*> Programs::close_all() {
  memory_.settle();
  std::vector<Program*> open;
  for (auto& [key, program] : programs_) {
    if (!program.handle) continue;
    table_.close(table_.context, program.handle);
    program.handle = nullptr;
    open.push_back(&program);
  }
  return open;
}

void Programs::reopen_with(int32_t threads) {
  if (!table_.use_threads) return;
  std::vector<Program*> closed = close_all();
  use_threads(threads);
  // The one for which the engine keeps most goes first: what grows later is there twice meanwhile.
  std::sort(closed.begin(), closed.end(),
            [](const Program* a, const Program* b) { return a->artifact.engine_bytes > b->artifact.engine_bytes; });
  for (Program* program : closed) open(*program);
}

Program& Programs::find(const Plan& plan, const Instruction::Call& call) {
  const GraphRecord& graph = *bundle_.manifest().graph(plan.graphs[call.graph].key);
  const Artifact* artifact = table_.runs_graphs ? nullptr : &artifact_of(graph, plan, plan.references.data() + call.first);
  return programs_.try_emplace({graph.key, artifact}, graph, artifact ? *artifact : exported(graph)).first->second;
}

const Artifact& Programs::artifact_of(const GraphRecord& graph, const Plan& plan, const Reference* operands) const {
  const Artifact* one = nullptr;
  for (const Artifact& artifact : target_->artifacts) {
    if (artifact.graph != graph.key) continue;
    if (artifact.baked.empty() || has_baked(artifact, graph, plan, operands)) return artifact;
    one = &artifact;
  }
  const std::string target = std::string("no artifact of target '") + table_.target + "'";
  if (!one) throw Error(Kind::Bundle, "graph '" + graph.name + "'", target, "one artifact for each graph", "Build the bundle again");
  throw Error(Kind::Bundle, "graph '" + graph.name + "'", target + " with " + shown_baked(*one, graph, plan, operands),
              "an artifact for each graph and each set of weights that plans give to it", "Build the bundle again");
}

void Programs::open(Program& program) {
  if (program.handle) return;
  const Bytes file = bundle_.file(program.artifact.file);  // hashed before the engine sees it
  const Located where = bundle_.locate(program.artifact.file);
  bespoke_artifact artifact{};
  artifact.struct_size = sizeof artifact;
  artifact.path = where.path.empty() ? nullptr : where.path.c_str();
  artifact.descriptor = where.extent.descriptor.get();
  artifact.offset = where.extent.offset;
  artifact.size = file.size;
  artifact.bytes = file.data;
  artifact.operands = program.operands.data(), artifact.operand_count = program.operands.size();
  artifact.results = program.results.data(), artifact.result_count = program.results.size();
  artifact.workspace = workspace_, artifact.workspace_bytes = workspace_size_;
  artifact.cache = engine_.cache.empty() ? nullptr : engine_.cache.c_str();
  char message[kMessage] = "";
  const int failed = table_.open(table_.context, &artifact, &program.handle, message, sizeof message);
  if (failed) program.handle = nullptr;
  if (failed == BESPOKE_ENGINE_OTHER_SIGNATURE) refuse_signature(program, message);
  refuse_without_memory(failed, program, file.size, message);
  refuse_device(failed, program, message);
  if (failed)
    throw Error(Kind::Bundle, program.artifact.file, message, std::string("a program that ") + table_.target + " can run",
                "Build the bundle again with the versions that this core was built with");
  engine_bytes_ = std::max<size_t>(engine_bytes_, program.artifact.engine_bytes);
}

void Programs::run(Program& program) {
  touched_ = std::max<size_t>(touched_, program.artifact.workspace_bytes);
  char message[kMessage] = "";
  memory_.began();
  const int failed = table_.run(table_.context, program.handle, program.operands.data(), program.operands.size(), program.results.data(),
                                program.results.size(), message, sizeof message);
  if (failed == BESPOKE_ENGINE_OTHER_SIGNATURE) refuse_signature(program, message);
  refuse_without_memory(failed, program, 0, message);
  refuse_device(failed, program, message);
  if (failed)
    throw Error(Kind::Plan, "graph '" + program.graph.name + "'", message, "a call that the engine can make",
                "Report this together with the bundle");
}

int64_t Programs::bytes_elsewhere() {
  const int64_t bytes = table_.peak_bytes ? std::max<int64_t>(0, table_.peak_bytes(table_.context)) : 0;
  elsewhere_ = static_cast<size_t>(bytes);
  return bytes;
}

void Programs::refuse_signature(const Program& program, const char* got) const {
  throw Error(Kind::Bundle, program.artifact.file, std::string("a program with ") + got,
              "the operands and results that the manifest says graph '" + program.graph.name + "' has",
              "Get the bundle again from where it was built");
}

void Programs::refuse_device(int failed, const Program& program, const char* got) const {
  for (const Lacking& lacking : kLacking) {
    if (failed != lacking.code) continue;
    const std::string options = target_ ? ", with options " + in_quotes(target_->options, kShownOptions) : "";
    throw Error(lacking.kind, program.artifact.file, got,
                std::string(lacking.expected) + " for programs of target '" + table_.target + "'" + options, lacking.next_step);
  }
}

}  // namespace bespoke
