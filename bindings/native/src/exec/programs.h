// SPDX-License-Identifier: Apache-2.0
// The compiled graphs of a bundle for one engine, opened when they are first called; and the weights they read.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "exec/engine.h"
#include "exec/engine_memory.h"
#include "format/bundle/bundle.h"
#include "kernels/int4.h"

namespace bespoke {

struct Program {
  Program(const GraphRecord& graph, const Artifact& artifact);
  Program(const Program&) = delete;

  const GraphRecord& graph;
  const Artifact artifact;
  std::vector<bespoke_tensor> inputs, outputs;           // in the graph's order; a call says where they are
  std::vector<const bespoke_tensor*> operands, results;  // of them, in the artifact's order
  void* handle = nullptr;
};

class Programs {
 public:
  // BundleError where the bundle has no artifacts for the engine and this one runs no graphs.
  Programs(Bundle& bundle, const Engine& engine, EngineMemory& memory);
  ~Programs();
  Programs(const Programs&) = delete;

  // The engine's threads, for what the core computes itself.
  kernels::Parallel parallel() const { return table_.parallel ? kernels::Parallel{table_.parallel, table_.context, 0} : kernels::serial; }

  // How many threads the runs that follow use at most; 0: as many as the engine has. Returns how many they will, 1 where the engine says
  // nothing of them.
  int32_t use_threads(int32_t threads) const { return table_.use_threads ? table_.use_threads(table_.context, threads) : 1; }

  // The same while no program is open, which lets an engine replace its pool of threads. Those that were open are opened again.
  void reopen_with(int32_t threads);

  size_t workspace_bytes() const { return workspace_bytes_; }                                    // that the programs of the target may want
  void use(uint8_t* workspace, size_t size) { workspace_ = workspace, workspace_size_ = size; }  // all of them share it

  // Bytes that opening a program, and a call of it, may add to the process: what none before it has taken. An engine that says what its
  // runs take keeps nothing between them: then a call may add what the last one did not need, which is counted already.
  size_t growth_to_open(const Program& program) const { return table_.peak_bytes ? 0 : more(program.artifact.engine_bytes, engine_bytes_); }
  size_t growth_to_run(const Program& program) const {
    return more(program.artifact.workspace_bytes, touched_) + (table_.peak_bytes ? more(program.artifact.engine_bytes, elsewhere_) : 0);
  }

  // Of a call of the plan: of its graph, or, where weights are part of artifacts, of its graph and the weights that it gives. The same
  // object each time.
  Program& find(const Plan& plan, const Instruction::Call& call);
  void open(Program& program);  // once
  void run(Program& program);   // its inputs and outputs have their places
  int64_t bytes_elsewhere();    // that the engine held in the last run, and the process does not

 private:
  std::vector<Program*> close_all();  // returns those that were open
  static size_t more(size_t wanted, size_t there) { return wanted > there ? wanted - there : 0; }
  const Artifact& artifact_of(const GraphRecord& graph, const Plan& plan, const Reference* operands) const;
  [[noreturn]] void refuse_signature(const Program& program, const char* got) const;
  void refuse_device(int failed, const Program& program, const char* got) const;  // unless `failed` says something else

  Bundle& bundle_;
  const Engine& engine_;
  const bespoke_engine& table_;
  EngineMemory& memory_;
  const Target* target_ = nullptr;
  std::map<std::pair<std::string, const Artifact*>, Program> programs_;  // by graph; null: of an engine that runs graphs
  uint8_t* workspace_ = nullptr;
  size_t workspace_size_ = 0, workspace_bytes_ = 0;
  size_t touched_ = 0, engine_bytes_ = 0;  // the most that calls have taken of the workspace, and that the engine holds
  size_t elsewhere_ = 0;                   // what the engine said last
};

}  // namespace bespoke
