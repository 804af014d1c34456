// SPDX-License-Identifier: Apache-2.0
// Which rows each step trains on, decided by (seed, cursor) alone: the rules, and the tests' vectors, are those of
// sdk/bespoke/rules/batches.py. Rows are read when their batch is made; no more than one is held.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "format/bundle/bundle.h"
#include "exec/steps.h"
#include "state/records.h"
#include "token_row.h"

namespace bespoke {

class StateStore;

using Row = TokenRow;  // mask[0] has no effect: nothing predicts the first token

class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual size_t size() const = 0;
  virtual size_t length(size_t row) const = 0;                // in tokens
  virtual size_t rejected_length(size_t) const { return 0; }  // of the rejected answer, in tokens; 0: the row is of no pair
  virtual void read(size_t row, Row& into) const = 0;
};

// Rows of a bundle's data file: tokens, mask and offsets, mapped. BundleError where they are not rows of tokens below vocab_size.
std::unique_ptr<RowSource> bundle_rows(const Tensors& tensors, const std::string& subject, int64_t vocab_size);
std::unique_ptr<RowSource> bundle_rows(Bundle& bundle, const std::optional<std::string>& name);  // no rows without a name
std::unique_ptr<RowSource> no_rows();
std::unique_ptr<RowSource> given_rows(std::vector<TokenRow> rows);

// Rows of the user's examples, which stay in the database until they are read; `store` outlives them. Reading one of an example
// that was forgotten meanwhile throws RowForgotten.
struct RowForgotten {};
std::unique_ptr<RowSource> user_rows(StateStore& store, std::vector<RowPlace> places);

struct BatchRules {
  uint64_t seed = 0;
  int64_t batch_size = 1, accumulation = 1;
  std::vector<int64_t> sequence_lengths;
  double general_share = 0;
  int64_t vocab_size = 0;
  bool pairs = false;  // whether the method learns from pairs of answers
};

// Hands out the micro-batches of one step after another. Holds no position of its own: that is CursorState.
class BatchCursor {
 public:
  // The sources outlive the cursor. DataError where neither has a row, ConfigError for rules that make no batch.
  BatchCursor(const RowSource& user, const RowSource& general, BatchRules rules);

  // All micro-batches of the step that `state` stands before, into `batches`; returns the state after it.
  // DataError for a row that is too long or has nothing to train on.
  CursorState step(const CursorState& state, std::vector<Batch>& batches);

 private:
  struct Order {
    int64_t epoch = -1;
    std::vector<uint32_t> rows;
  };
  const RowSource& rows(Source source) const { return source == Source::user ? user_ : general_; }
  Source source_of(int64_t step, int64_t micro_batch) const;
  size_t row_number(Source source, int64_t place);
  // The rows that a micro-batch takes from a place on, those of pairs first.
  std::vector<int64_t> row_numbers(Source source, int64_t from);

  const RowSource& user_;
  const RowSource& general_;
  BatchRules rules_;
  uint64_t general_below_;
  Order orders_[2];  // one epoch of each source
};

// Every row exactly once: shortest sequence length first, within a length in the order given; the last batch of a length is
// filled with padding rows. DataError as BatchCursor::step.
class EvaluationBatches {
 public:
  EvaluationBatches(const RowSource& rows, int64_t batch_size, std::vector<int64_t> sequence_lengths, int64_t vocab_size,
                    Source source = Source::user);
  [[nodiscard]] bool next(Batch& batch);  // false: that was all

 private:
  const RowSource& rows_;
  int64_t batch_size_;
  std::vector<int64_t> lengths_;
  int64_t vocab_size_;
  Source source_;
  size_t length_ = 0, row_ = 0;  // where the search for the next row stands
};

// Ascending, without repeats. ConfigError where there is none, or one below 1.
std::vector<int64_t> checked_lengths(std::vector<int64_t> sequence_lengths);

}  // namespace bespoke
