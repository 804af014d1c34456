// SPDX-License-Identifier: Apache-2.0
// What goes into the state and what comes out of it, as plain records: those of sdk/bespoke/rules/records.py, where training
// needs them. JSON stays text here: its readers know what they look for.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/descriptor.h"
#include "platform/mapping.h"
#include "token_row.h"

namespace bespoke {

struct StateTensor {  // float32, row-major, somebody else's memory; `data` is not looked at where only shapes are asked for
  std::string_view name;
  const int64_t* shape = nullptr;
  int32_t rank = 0;
  const float* data = nullptr;

  int64_t elements() const {
    int64_t count = 1;
    for (int32_t i = 0; i < rank; i++) count *= shape[i];
    return count;
  }
};

enum class Split { train, validation };
std::string name_of(Split split);

enum class Use { any, train };  // of an example: `train` is never held out for validation

struct Identified {  // an example that has passed the checks which need no tokens
  std::string json;  // canonical
  std::string id;
};

struct NewExample {  // what it points to outlives it
  const Identified* example;
  const std::vector<TokenRow>* rows;
  Use use = Use::any;
};

struct AddedExample {
  std::string id;
  Split split = Split::train;
  bool created = false;  // false: the same id with the same content was there already
};

struct ExampleInfo {  // an example as stored; tokens and trained tokens are sums over its rows
  std::string id;
  Split split = Split::train;
  std::string json;  // JSON object
  int64_t tokens = 0, trained_tokens = 0, rows = 0;
  std::string added_at;
};

struct Note {  // a passage of the words of an example
  int64_t id = 0;
  std::string words;
};

struct Forgotten {
  bool example = false;          // it was there
  int64_t accepted_deleted = 0;  // adapters that had seen it
  bool run_stopped = false;      // an unfinished run had
  int64_t numbers_dropped = 0;   // of rounds that it had entered, and that no server has confirmed
  std::vector<int64_t> rounds;   // that it had entered
};

struct RowPlace {  // a row of an example; its tokens stay in the database until `read_row`
  int64_t example;
  int32_t window;
  int32_t length;               // tokens
  int32_t rejected_length = 0;  // tokens of the rejected answer, where the row is the chosen one of a pair
};

struct Run {
  int64_t id = 0;
  std::string method;
  int64_t seed = 0;
  std::string settings;  // JSON object, {"training": {...}}
  int64_t steps = 0;
  std::optional<int64_t> started_from;  // version
  int64_t step = 0;                     // of the last commit, by slot or by journal
  std::string cursor;                   // JSON object
  std::optional<std::string> ended_because;
  std::string started_at;
  std::optional<std::string> ended_at;
};

struct CursorState {  // where a run stands: steps taken, and rows taken from each source
  int64_t step = 0, user_position = 0, general_position = 0;
};

struct JournalRow {  // a step of a replayable plan; values come back bit for bit
  int64_t step = 0;
  std::string cursor;  // JSON object
  std::vector<float> values;
  bool rejected = false;
  std::string metrics = "{}";  // JSON object
};

struct LockedFile {  // mapped, under a lock that goes with the descriptor
  Descriptor descriptor;
  MappedFile mapped;
};

class MappedTensors {  // of a verified file, read-only: no anonymous memory but a few words a tensor
 public:
  const StateTensor* find(std::string_view name) const;
  const std::vector<StateTensor>& all() const { return tensors_; }  // in the order of their names

 private:
  friend struct TensorFileReader;
  LockedFile file_;
  std::vector<int64_t> extents_;
  std::vector<std::unique_ptr<std::string>> spelled_;  // names that JSON escapes
  std::vector<StateTensor> tensors_;
};

struct Slot {
  int64_t step = 0;
  std::string cursor;  // JSON object
  MappedTensors tensors;
};

struct JudgedStep {  // of a run, and its loss on the examples that choose its best step: infinite where it is no number
  int64_t step = 0;
  double loss = 0;
};

struct BestStep {
  int64_t step = 0;
  MappedTensors adapter;
};

struct HeldOut {  // rows of a run's held-out examples: of those that choose its best step, and of those that judge what it learned
  std::vector<RowPlace> choosing, judging;
};

// An accepted adapter; `run` is none and `source` set where it was imported. `other_text`: trained with other text rules than the
// bundle's, so that it does not answer.
struct Version {
  int64_t id = 0;
  std::optional<int64_t> run;
  int64_t step = 0;
  std::string metrics;  // JSON object
  std::string accepted_at;
  std::optional<std::string> source;
  bool other_text = false;
};

}  // namespace bespoke
