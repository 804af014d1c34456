// SPDX-License-Identifier: Apache-2.0
#include "exec/programs.h"

#include <algorithm>

#include "platform/mapping.h"

namespace bespoke {
namespace {

// Whether an engine that failed without saying why (XNNPACK does) could have had what it asks for: twice what it keeps, while that
// grows, and structures about as large as the artifact.
bool room_for(const Artifact& artifact, size_t artifact_size) {
  return can_map(2 * artifact.engine_bytes + artifact_size + (size_t{1} << 20));
}

void refuse_without_memory(int failed, const Program& program, size_t artifact_size, const char* message) {
  if (failed == BESPOKE_ENGINE_NO_MEMORY || (failed && !room_for(*program.artifact, artifact_size)))
    throw Error(Kind::Budget, "graph '" + program.graph->name + "'", message, "room within the limit that the system sets",
                "Raise the limit or use a bundle built for a smaller budget");
}

}  // namespace

Programs::Programs(Bundle& bundle, const bespoke_engine& engine) : bundle_(bundle), engine_(engine) {
  std::string there;
  for (const Target& target : bundle.manifest().targets) {
    if (target.name == engine.target) target_ = &target;
    there += (there.empty() ? "" : ", ") + target.name;
  }
  if (!target_)
    throw Error(Kind::Bundle, std::string("target '") + engine.target + "'", "a bundle for " + there,
                "a bundle for the engine that runs it", std::string("Build the bundle with targets=\"") + engine.target + "\"");
  for (const Artifact& artifact : target_->artifacts) workspace_bytes_ = std::max<size_t>(workspace_bytes_, artifact.workspace_bytes);
}

Programs::~Programs() {
  for (auto& [key, program] : programs_)
    if (program.handle) engine_.close(engine_.context, program.handle);
}

Program& Programs::find(const std::string& key) {
  const auto known = programs_.find(key);
  if (known != programs_.end()) return known->second;
  const GraphRecord* graph = bundle_.manifest().graph(key);
  for (const Artifact& artifact : target_->artifacts) {
    if (artifact.graph != key) continue;
    Program program{graph, &artifact, {}, nullptr};
    for (const std::string& name : artifact.operands) {
      const auto at = std::find_if(graph->inputs.begin(), graph->inputs.end(), [&](const TensorSpec& spec) { return spec.name == name; });
      program.operands.push_back(static_cast<uint32_t>(at - graph->inputs.begin()));
    }
    return programs_.emplace(key, std::move(program)).first->second;
  }
  throw Error(Kind::Bundle, "graph '" + graph->name + "'", std::string("no artifact of target '") + engine_.target + "'",
              "one artifact for each graph", "Build the bundle again");
}

void Programs::open(Program& program) {
  if (program.handle) return;
  const Bytes file = bundle_.file(program.artifact->file);  // hashed before the engine sees it
  char message[256] = "";
  const int failed =
      engine_.open(engine_.context, file.data, file.size, workspace_, workspace_size_, &program.handle, message, sizeof message);
  refuse_without_memory(failed, program, file.size, message);
  if (failed)
    throw Error(Kind::Bundle, program.artifact->file, message, std::string("a program that ") + engine_.target + " can run",
                "Build the bundle again with the versions that this core was built with");
  engine_bytes_ = std::max<size_t>(engine_bytes_, program.artifact->engine_bytes);
}

void Programs::run(Program& program, const bespoke_tensor* operands, const bespoke_tensor* results) {
  open(program);
  touched_ = std::max<size_t>(touched_, program.artifact->workspace_bytes);
  ordered_.clear();
  for (uint32_t operand : program.operands) ordered_.push_back(operands[operand]);
  char message[256] = "";
  const int failed = engine_.run(engine_.context, program.handle, ordered_.data(), ordered_.size(), results,
                                 program.graph->outputs.size(), message, sizeof message);
  if (failed == BESPOKE_ENGINE_OTHER_SIGNATURE)
    throw Error(Kind::Bundle, program.artifact->file, std::string("a program with ") + message,
                "the operands and results that the manifest says graph '" + program.graph->name + "' has",
                "Get the bundle again from where it was built");
  refuse_without_memory(failed, program, 0, message);
  if (failed)
    throw Error(Kind::Plan, "graph '" + program.graph->name + "'", message, "a call that the engine can make",
                "Report this together with the bundle");
}

}  // namespace bespoke
