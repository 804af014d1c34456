// SPDX-License-Identifier: Apache-2.0
// Runs a plan, instruction by instruction. It knows the ten instructions and nothing of the method. Before each load and call the
// memory guard is asked, before each instruction whether to stop.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "exec/buffers.h"
#include "exec/memory_guard.h"
#include "exec/programs.h"
#include "exec/steps.h"

namespace bespoke {

// What the runtime gives a section.
using Received = std::function<bool(const std::string& name, uint8_t* to, size_t bytes)>;

struct Bindings {
  std::map<std::string, const void*> tensors;  // of the batch
  const Batch* batch = nullptr;                // for the arrays in it
  std::map<std::string, double> scalars;
  uint64_t seed = 0;
  uint32_t step = 0;
  const AdapterView* adapter = nullptr;          // read in place of the current one
  const std::vector<float>* recorded = nullptr;  // of a step that is replayed
  Received received;                             // writes what a round brought under a name; false: it brought nothing
  std::vector<float>* emitted = nullptr;         // where column 0 of the last emitted value that is no scalar goes
};

constexpr int kStages = std::size(kStageNames);

struct Spent {  // seconds since the machine was made
  double stages[kStages] = {};
  double longest = 0;  // of a single call
};

// What `free` does with weights. Training gives their pages back: a step needs each group once or twice, and memory for other things.
// Answers need all of them again for the next token, so they keep them; where memory is short the system takes clean pages itself.
enum class Weights { given_back, kept };

class Interpreter {
 public:
  Interpreter(const Plan& plan, Weights weights, Bundle& bundle, Programs& programs, Buffers& buffers, EngineMemory& memory,
              MemoryGuard& guard, Control& control, Spent& spent);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;

  Outcome run(Section section, const Bindings& bindings);
  void replay(const Bindings& bindings);

  // Column `n` of a value of the section that ran last, which has several elements: of a matrix, else all of its first extent.
  void column(uint32_t value, int64_t n, std::vector<float>& to) const {
    const auto* at = reinterpret_cast<const float*>(memory_.see(find(Reference{value}), plan_.bytes(value))) + n;
    const int64_t rows = plan_.shape(value)[0], columns = plan_.elements(value) / std::max<int64_t>(rows, 1);
    to.resize(static_cast<size_t>(rows));
    for (float& number : to) number = *at, at += columns;
  }

  // Bytes of the results of one call that are added to values, the largest.
  static size_t temporaries(const Plan& plan, const Manifest& manifest);

 private:
  struct WeightValue {
    uint32_t value;
    std::string tensor;
  };
  struct Group {
    std::string file;
    std::string subject;  // "Weights 'x'", for the guard
    Bytes bytes;
    std::vector<WeightValue> values;
  };

  Outcome execute(const std::vector<Instruction>& code, const Bindings& bindings);
  Outcome steps(const std::vector<Instruction>& code, const Bindings& bindings);
  void open(const std::vector<Instruction>& code);
  void bind(const Bindings& bindings);
  void bind_adapter(const AdapterView& adapter);
  void call(const Instruction::Call& call);
  Program& program_of(const Instruction::Call& call) const;
  Group& group_of(const std::string& name);
  void repeat(uint32_t value, const Bindings& bindings);
  uint8_t* array(const Value& value, const std::string& name, const Bindings& bindings) const;
  [[noreturn]] void refuse_unbound(uint32_t value) const;
  void load(const std::string& group);
  void free(const std::string& group);
  uint8_t* find(const Reference& reference) const;
  uint8_t* whole(uint32_t value) const { return base_[value]; }
  uint32_t query_of(const Instruction::Noise& noise) const;
  double scalar(uint32_t value, const Bindings& bindings) const;
  bool stores(uint32_t value) const;
  uint8_t* stored_at(uint32_t value) const;

  const Plan& plan_;
  const Weights weights_;
  Bundle& bundle_;
  Programs& programs_;
  Buffers& buffers_;
  EngineMemory& memory_;
  MemoryGuard& guard_;
  Control& control_;
  Spent& spent_;
  std::vector<Program*> graphs_;                  // null: weights are part of its programs, and those of its calls are in `baked_`
  std::unordered_map<uint32_t, Program*> baked_;  // by the call's first reference
  std::vector<std::string> calls_;                // "Graph 'x' of method 'y'", for the guard
  std::vector<uint8_t*> base_;                    // of each value, where it is now
  std::vector<int64_t> numbers_;                  // constants and scalars, 8 bytes each
  std::vector<int32_t> number_of_;                // value -> its place in numbers_, -1
  std::vector<size_t> offset_;                    // of values of the state and of a session, from its beginning
  std::vector<uint32_t> bound_;                   // values whose place changes from run to run
  std::vector<uint32_t> pieces_;                  // of them, those of the adapter, in the order of AdapterView
  std::vector<uint32_t> stored_;                  // sources of stores: what the update makes
  std::map<std::string, Group> groups_;
  std::map<uint32_t, std::vector<uint8_t>> repeated_;      // batch tensors of several copies
  std::vector<std::pair<const uint8_t*, uint32_t>> adds_;  // temporary, number of the result
  Stage stage_ = Stage::forward;
  bool finishes_ = false;  // stores are what the adapter comes to, not state
};

// AdapterError where a tensor that a plan reads as a piece of this shape, `rank` extents, is not there, or of another one.
void refuse_another_shape(const std::string& name, const FloatTensor* tensor, const int64_t* shape, size_t rank);

}  // namespace bespoke
