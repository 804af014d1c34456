// SPDX-License-Identifier: Apache-2.0
// What passes between the trainer, the gate, golden vectors and the machine: plain records, and the machine as those see it.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "enums.h"
#include "exec/control.h"

namespace bespoke {

struct BatchArray {  // [B, T]: one of the two is empty
  std::vector<int64_t> tokens;
  std::vector<float> numbers;
};

// The array of a method that learns from pairs of answers: 1 in the rows of a pair, which follow each other, the chosen answer first.
constexpr const char* kPairs = "pairs";

// B = rows of a batch, T = positions of a row. The memory is reused from step to step.
struct Batch {
  std::vector<int64_t> tokens, targets;  // [B, T]
  std::vector<float> mask;               // [B, T], 1 where the target counts, 0 elsewhere
  int64_t rows = 0;                      // B
  int64_t sequence_length = 0;           // T
  int64_t tokens_trained = 0;            // positions with mask 1
  Source source = Source::user;
  std::vector<int64_t> row_numbers;                  // of its rows within their source; padding rows have none
  void clear_to(int64_t new_rows, int64_t length) {  // rows of padding alone
    const auto cells = static_cast<size_t>(new_rows * length);
    tokens.assign(cells, 0);
    targets.assign(cells, 0);
    mask.assign(cells, 0.0f);
    rows = new_rows;
    sequence_length = length;
    tokens_trained = 0;
  }

  std::map<std::string, BatchArray> arrays;  // that a method asks for by name; of examples there is `pairs` alone
};

struct NamedTensor {  // float32, somebody else's memory
  std::string name;
  std::vector<int64_t> shape;
  const float* data;

  int64_t elements() const {
    int64_t count = 1;
    for (int64_t extent : shape) count *= extent;
    return count;
  }
};

struct FloatTensor {  // somebody else's memory
  const float* data;
  std::vector<int64_t> shape;
};

using TensorSource = std::map<std::string, FloatTensor>;
using AdapterView = TensorSource;

// Emitted scalars by name, recorded values in order, and what a measurement sends.
struct Outcome {
  std::map<std::string, double> metrics;
  std::vector<float> recorded, sent;

  bool finite() const {
    for (const auto& metric : metrics)
      if (!std::isfinite(metric.second)) return false;
    for (float value : recorded)
      if (!std::isfinite(value)) return false;
    return true;
  }
};

// One method of a bundle, ready to run. `Machine` (exec/machine.h) is one; tests of what drives it have another.
class Steps {
 public:
  using Outcome = bespoke::Outcome;
  virtual ~Steps() = default;

  // One step over its micro-batches, `step` counted from 1; the new state is aside until `flip`. Throws Abandoned, Error.
  virtual Outcome train_step(const std::vector<Batch>& batches, double learning_rate, int64_t step, uint64_t seed) = 0;
  // A step's stores again from its journal, flipped.
  virtual void replay_step(const std::vector<float>& recorded, double learning_rate, int64_t step, uint64_t seed) = 0;
  // Sum of losses and count of right guesses over the unmasked tokens; `adapter` null: that of `adapter()`. Throws Abandoned, Error.
  virtual std::pair<double, double> evaluate_batch(const Batch& batch, const AdapterView* adapter) = 0;
  virtual void flip() = 0;
  virtual void fill(const TensorSource& tensors) = 0;  // sets state; what `tensors` lacks becomes zero

  virtual std::vector<NamedTensor> state() const = 0;  // adapter and optimizer state now, sorted by name
  // What the steps so far come to: the adapter's part of the state, or what the method's section `finish` makes of that. Throws
  // Abandoned, Error.
  virtual std::vector<NamedTensor> adapter() = 0;
  virtual bool accumulates() const = 0;
  virtual bool replayable() const = 0;
  virtual bool learns_pairs() const { return false; }         // reads the array `pairs`
  virtual std::vector<int64_t> sequence_lengths() const = 0;  // ascending
  virtual Control& control() const = 0;
  virtual std::map<std::string, double> seconds_by_stage() const = 0;  // forward, head, backward, update; since it was made
  virtual double longest_call_seconds() const = 0;                     // what a stop may have to wait for

  // For golden vectors: what the last step stored (before `flip`), and the sums over its micro-batches.
  virtual std::vector<NamedTensor> following() const = 0;
  virtual std::vector<NamedTensor> sums() const = 0;
};

}  // namespace bespoke
