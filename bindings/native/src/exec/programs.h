// SPDX-License-Identifier: Apache-2.0
// The compiled graphs of a bundle for one engine, opened when they are first called; and the weights they read.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bespoke.h"
#include "format/bundle/bundle.h"

namespace bespoke {

struct Program {
  const GraphRecord* graph;
  const Artifact* artifact;
  std::vector<uint32_t> operands;  // of the artifact: which of the graph's
  void* handle = nullptr;
};

class Programs {
 public:
  // BundleError where the bundle has no artifacts for the engine.
  Programs(Bundle& bundle, const bespoke_engine& engine);
  ~Programs();
  Programs(const Programs&) = delete;

  size_t workspace_bytes() const { return workspace_bytes_; }  // that the programs of the target may want
  void use(uint8_t* workspace, size_t size) { workspace_ = workspace, workspace_size_ = size; }  // all of them share it

  // Bytes that a call of the program may add to the process: what no call before it has touched.
  size_t growth(const Program& program) const {
    const auto more = [](size_t wanted, size_t there) { return wanted > there ? wanted - there : 0; };
    return more(program.artifact->workspace_bytes, touched_) + more(program.artifact->engine_bytes, engine_bytes_);
  }

  Program& find(const std::string& key);  // the same object each time
  void open(Program& program);            // if it is not yet
  // Operands and results in the graph's order.
  void run(Program& program, const bespoke_tensor* operands, const bespoke_tensor* results);

 private:
  Bundle& bundle_;
  const bespoke_engine& engine_;
  const Target* target_ = nullptr;
  std::map<std::string, Program> programs_;
  std::vector<bespoke_tensor> ordered_;
  uint8_t* workspace_ = nullptr;
  size_t workspace_size_ = 0, workspace_bytes_ = 0;
  size_t touched_ = 0, engine_bytes_ = 0;  // the most that calls have taken of the workspace, and that the engine holds
};

}  // namespace bespoke
