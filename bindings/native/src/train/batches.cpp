// SPDX-License-Identifier: Apache-2.0
// The draws of batches.h, and what is refused.
#include "train/batches.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "exec/noise.h"
#include "state/store.h"

namespace bespoke {

namespace {

std::string about(int64_t number, Source source) { return "row " + std::to_string(number) + " of the " + name_of(source) + " data"; }

int64_t length_for(int64_t tokens, const std::vector<int64_t>& lengths, int64_t number, Source source) {
  if (tokens < 2)
    throw Error(Kind::Data, about(number, source), std::to_string(tokens) + " tokens",
                "2 or more: each token is predicted from those before it", "Leave the row out");
  for (int64_t length : lengths)
    if (tokens - 1 <= length) return length;
  throw Error(Kind::Data, about(number, source), std::to_string(tokens) + " tokens",
              "at most " + std::to_string(lengths.back() + 1) + ": one more than the longest sequence length",
              "Shorten the row, or build the bundle with a longer sequence length");
}

void check_row(const std::vector<int32_t>& tokens, const std::vector<uint8_t>& mask, int64_t vocab_size, int64_t number, Source source) {
  if (tokens.size() != mask.size())
    throw Error(Kind::Data, about(number, source), std::to_string(tokens.size()) + " tokens and a mask of " + std::to_string(mask.size()),
                "one mask entry for each token", "Tokenize the data again");
  for (int32_t token : tokens)
    if (token < 0 || token >= vocab_size)
      throw Error(Kind::Data, about(number, source), "token " + std::to_string(token),
                  "0 to " + std::to_string(vocab_size - 1) + ", which the model knows", "Tokenize the data again");
  for (uint8_t trained : mask)
    if (trained > 1)
      throw Error(Kind::Data, about(number, source), "a mask of " + std::to_string(trained), "0 or 1 for each token",
                  "Tokenize the data again");
  if (std::none_of(mask.begin() + 1, mask.end(), [](uint8_t trained) { return trained != 0; }))
    throw Error(Kind::Data, about(number, source), "no token to train on", "at least one unmasked token after the first",
                "Leave the row out, or check " + setting("train_on"));
}

// The rows that the batch names, and padding rows up to batch_size. With `pairs`, a rejected answer is a row below the chosen one.
class BatchFiller {
 public:
  BatchFiller(Batch& batch, const RowSource& rows, const std::vector<int64_t>& lengths, int64_t vocab_size, Source source, bool pairs)
      : batch_(batch), rows_(rows), lengths_(lengths), vocab_size_(vocab_size), source_(source), pairs_(pairs) {}

  void fill(int64_t batch_size) {
    int64_t length = 0;
    for (int64_t number : batch_.row_numbers) {
      const auto row = static_cast<size_t>(number);
      length = std::max(length, length_for(static_cast<int64_t>(rows_.length(row)), lengths_, number, source_));
      if (pairs_ && rows_.rejected_length(row))
        length = std::max(length, length_for(static_cast<int64_t>(rows_.rejected_length(row)), lengths_, number, source_));
    }
    batch_.clear_to(batch_size, length);
    batch_.source = source_;
    if (pairs_)
      batch_.arrays[kPairs].numbers.assign(batch_.mask.size(), 0.0f);
    else
      batch_.arrays.clear();
    Row row;
    for (int64_t number : batch_.row_numbers) {
      rows_.read(static_cast<size_t>(number), row);
      const bool is_pair = pairs_ && !row.rejected_tokens.empty();
      batch_.tokens_trained += place(row.tokens, row.mask, number, is_pair);
      if (is_pair) place(row.rejected_tokens, row.rejected_mask, number, true);  // not trained on: no token counts
    }
  }

 private:
  // How many of its tokens are unmasked.
  int64_t place(const std::vector<int32_t>& tokens, const std::vector<uint8_t>& mask, int64_t number, bool of_pair) {
    check_row(tokens, mask, vocab_size_, number, source_);
    int64_t unmasked = 0;
    for (size_t t = 0; t + 1 < tokens.size(); t++) {
      batch_.tokens[at_ + t] = tokens[t];
      batch_.targets[at_ + t] = tokens[t + 1];
      if (mask[t + 1] == 0) continue;
      batch_.mask[at_ + t] = 1.0f;
      unmasked++;
    }
    const size_t end = at_ + static_cast<size_t>(batch_.sequence_length);
    if (of_pair) std::fill(&batch_.arrays[kPairs].numbers[at_], batch_.arrays[kPairs].numbers.data() + end, 1.0f);
    at_ = end;
    return unmasked;
  }

  Batch& batch_;
  const RowSource& rows_;
  const std::vector<int64_t>& lengths_;
  int64_t vocab_size_;
  Source source_;
  bool pairs_;
  size_t at_ = 0;  // where the next row begins
};

void check(bool fine, const char* name, const std::string& got, const char* expected) {
  if (!fine) throw Error(Kind::Config, std::string("training.") + name, got, expected, std::string("Change ") + name);
}

// Rows of one epoch, sorted by the first two words of their counters, ties by row number.
std::vector<uint32_t> epoch_order(size_t count, Source source, int64_t epoch, uint64_t seed) {
  const Stream stream = source == Source::user ? Stream::user_order : Stream::general_order;
  std::vector<uint64_t> keys(count);
  std::vector<uint32_t> order(count);
  for (size_t row = 0; row < count; row++) {
    const Words words = philox({static_cast<uint32_t>(row), 0, static_cast<uint32_t>(stream), static_cast<uint32_t>(epoch)}, seed);
    keys[row] = static_cast<uint64_t>(words[0]) << 32 | words[1];
    order[row] = static_cast<uint32_t>(row);
  }
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return keys[a] != keys[b] ? keys[a] < keys[b] : a < b; });
  return order;
}

}  // namespace

std::vector<int64_t> checked_lengths(std::vector<int64_t> lengths) {
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  check(!lengths.empty() && lengths.front() >= 1, "sequence_lengths", lengths.empty() ? "[]" : std::to_string(lengths.front()),
        "one or more lengths of at least 1");
  return lengths;
}

// ---- cursor ------------------------------------------------------------------------------------------------------------

BatchCursor::BatchCursor(const RowSource& user, const RowSource& general, BatchRules rules)
    : user_(user), general_(general), rules_(std::move(rules)) {
  if (user.size() == 0 && general.size() == 0)
    throw Error(Kind::Data, "training data", "no example of the user and no general row in the bundle", "at least one row",
                "Add an example, or build the bundle with data");
  rules_.sequence_lengths = checked_lengths(std::move(rules_.sequence_lengths));
  check(rules_.batch_size >= 1, "batch_size", std::to_string(rules_.batch_size), "1 or more");
  check(rules_.accumulation >= 1, "accumulation", std::to_string(rules_.accumulation), "1 or more");
  check(rules_.general_share >= 0 && rules_.general_share <= 1, "general_share", nlohmann::json(rules_.general_share).dump(),
        "a share from 0 to 1");
  general_below_ = static_cast<uint64_t>(rules_.general_share * 0x1p32);
}

CursorState BatchCursor::step(const CursorState& state, std::vector<Batch>& batches) {
  int64_t positions[2] = {state.user_position, state.general_position};
  batches.resize(static_cast<size_t>(rules_.accumulation));
  for (int64_t micro_batch = 0; micro_batch < rules_.accumulation; micro_batch++) {
    const Source source = source_of(state.step, micro_batch);
    Batch& batch = batches[static_cast<size_t>(micro_batch)];
    int64_t& position = positions[static_cast<int>(source)];
    batch.row_numbers = row_numbers(source, position);
    BatchFiller(batch, rows(source), rules_.sequence_lengths, rules_.vocab_size, source, rules_.pairs).fill(rules_.batch_size);
    position += static_cast<int64_t>(batch.row_numbers.size());
  }
  return {state.step + 1, positions[0], positions[1]};
}

Source BatchCursor::source_of(int64_t step, int64_t micro_batch) const {
  if (general_.size() == 0) return Source::user;
  if (user_.size() == 0) return Source::general;
  const Words words =
      philox({static_cast<uint32_t>(micro_batch), 0, static_cast<uint32_t>(Stream::source), static_cast<uint32_t>(step)}, rules_.seed);
  return words[0] < general_below_ ? Source::general : Source::user;
}

size_t BatchCursor::row_number(Source source, int64_t place) {
  const int64_t count = static_cast<int64_t>(rows(source).size());
  Order& order = orders_[static_cast<int>(source)];
  if (order.epoch != place / count) {
    order.rows.clear();
    order.rows.shrink_to_fit();  // before the next one is made: an order is the one thing here that grows with the data
    order = {place / count, epoch_order(static_cast<size_t>(count), source, place / count, rules_.seed)};
  }
  return order.rows[static_cast<size_t>(place % count)];
}

std::vector<int64_t> BatchCursor::row_numbers(Source source, int64_t from) {
  const RowSource& all = rows(source);
  std::vector<int64_t> pairs, singles;
  for (int64_t place = from; place < from + static_cast<int64_t>(all.size()); place++) {
    const size_t number = row_number(source, place);
    const bool is_pair = rules_.pairs && all.rejected_length(number) > 0;
    if (static_cast<int64_t>(2 * pairs.size() + singles.size()) + 1 + is_pair > rules_.batch_size) break;
    (is_pair ? pairs : singles).push_back(static_cast<int64_t>(number));
  }
  pairs.insert(pairs.end(), singles.begin(), singles.end());
  return pairs;
}

// ---- evaluation --------------------------------------------------------------------------------------------------------

EvaluationBatches::EvaluationBatches(const RowSource& rows, int64_t batch_size, std::vector<int64_t> sequence_lengths, int64_t vocab_size,
                                     Source source)
    : rows_(rows), batch_size_(batch_size), lengths_(checked_lengths(std::move(sequence_lengths))), vocab_size_(vocab_size),
      source_(source) {
  for (size_t row = 0; row < rows.size(); row++)
    length_for(static_cast<int64_t>(rows.length(row)), lengths_, static_cast<int64_t>(row), source);
}

bool EvaluationBatches::next(Batch& batch) {
  batch.row_numbers.clear();
  for (; length_ < lengths_.size(); length_++, row_ = 0) {
    while (row_ < rows_.size() && static_cast<int64_t>(batch.row_numbers.size()) < batch_size_) {
      const int64_t needed = static_cast<int64_t>(rows_.length(row_)) - 1;
      if (needed <= lengths_[length_] && (length_ == 0 || needed > lengths_[length_ - 1]))
        batch.row_numbers.push_back(static_cast<int64_t>(row_));
      row_++;
    }
    if (batch.row_numbers.empty()) continue;
    BatchFiller(batch, rows_, lengths_, vocab_size_, source_, false).fill(batch_size_);
    return true;
  }
  return false;
}

// ---- rows of a state and of a bundle ------------------------------------------------------------------------------------

namespace {

class UserRows : public RowSource {
 public:
  UserRows(StateStore& store, std::vector<RowPlace> places) : store_(store), places_(std::move(places)) {}
  size_t size() const override { return places_.size(); }
  size_t length(size_t row) const override { return static_cast<size_t>(places_[row].length); }
  size_t rejected_length(size_t row) const override { return static_cast<size_t>(places_[row].rejected_length); }
  void read(size_t row, Row& into) const override {
    into.tokens.resize(length(row));
    into.mask.resize(length(row));
    into.rejected_tokens.resize(rejected_length(row));
    into.rejected_mask.resize(rejected_length(row));
    if (!store_.read_row(places_[row], into.tokens.data(), into.mask.data())) throw RowForgotten{};
    if (rejected_length(row) && !store_.read_rejected(places_[row], into.rejected_tokens.data(), into.rejected_mask.data()))
      throw RowForgotten{};
  }

 private:
  StateStore& store_;
  std::vector<RowPlace> places_;
};

class GivenRows : public RowSource {
 public:
  explicit GivenRows(std::vector<TokenRow> rows) : rows_(std::move(rows)) {}
  size_t size() const override { return rows_.size(); }
  size_t length(size_t row) const override { return rows_[row].tokens.size(); }
  size_t rejected_length(size_t row) const override { return rows_[row].rejected_tokens.size(); }
  void read(size_t row, Row& into) const override { into = rows_[row]; }

 private:
  std::vector<TokenRow> rows_;
};

class BundleRows : public RowSource {
 public:
  BundleRows(const int32_t* tokens, const uint8_t* mask, const int64_t* offsets, size_t count)
      : tokens_(tokens), mask_(mask), offsets_(offsets), count_(count) {}
  size_t size() const override { return count_; }
  size_t length(size_t row) const override { return static_cast<size_t>(offsets_[row + 1] - offsets_[row]); }
  void read(size_t row, Row& into) const override {
    into = {};
    into.tokens.assign(tokens_ + offsets_[row], tokens_ + offsets_[row + 1]);
    into.mask.assign(mask_ + offsets_[row], mask_ + offsets_[row + 1]);
  }

 private:
  const int32_t* tokens_;
  const uint8_t* mask_;
  const int64_t* offsets_;
  size_t count_;
};

class NoRows : public RowSource {
 public:
  size_t size() const override { return 0; }
  size_t length(size_t) const override { return 0; }
  void read(size_t, Row& into) const override { into = {}; }
};

}  // namespace

std::unique_ptr<RowSource> user_rows(StateStore& store, std::vector<RowPlace> places) {
  return std::make_unique<UserRows>(store, std::move(places));
}

std::unique_ptr<RowSource> no_rows() { return std::make_unique<NoRows>(); }

std::unique_ptr<RowSource> given_rows(std::vector<TokenRow> rows) { return std::make_unique<GivenRows>(std::move(rows)); }

std::unique_ptr<RowSource> bundle_rows(const Tensors& tensors, const std::string& subject, int64_t vocab_size) {
  const auto refuse = [&](const char* got, const char* expected) {
    return Error(Kind::Bundle, subject, got, expected, "Build the bundle again, or copy it again");
  };
  const auto flat = [&](const char* name, DType dtype) -> const Tensor& {
    const auto found = tensors.find(name);
    if (found == tensors.end() || tensors.size() != 3 || found->second.dtype != dtype || found->second.shape.size() != 1)
      throw refuse("other tensors", "tokens int32, mask uint8 and offsets int64, in one dimension");
    return found->second;
  };
  const Tensor &tokens = flat("tokens", DType::int32), &mask = flat("mask", DType::uint8), &offsets = flat("offsets", DType::int64);
  // safetensors aligns its data to 8 bytes only where the writer padded the header: then, as int32, it may be read in place.
  if (reinterpret_cast<uintptr_t>(tokens.data) % alignof(int32_t) || reinterpret_cast<uintptr_t>(offsets.data) % alignof(int64_t))
    throw refuse("tensors that are not aligned", "each aligned to its type");
  const auto* ids = reinterpret_cast<const int32_t*>(tokens.data);
  const auto* bounds = reinterpret_cast<const int64_t*>(offsets.data);
  const int64_t count = tokens.shape[0], ends = offsets.shape[0];
  if (mask.shape[0] != count) throw refuse("a mask of another length", "one entry for each token");
  bool fine = ends >= 1 && ends - 1 <= int64_t{std::numeric_limits<uint32_t>::max()} && bounds[0] == 0 && bounds[ends - 1] == count;
  // Held against `count` before it is used as a place: a damaged offset may be anything.
  for (int64_t row = 0; fine && row + 1 < ends; row++)
    fine = bounds[row] <= count - 2 && bounds[row + 1] <= count && bounds[row + 1] >= bounds[row] + 2;
  if (!fine) throw refuse("offsets that are not those of rows", "0 ... the number of tokens, 2 or more a row");
  for (int64_t row = 0; fine && row + 1 < ends; row++) fine = mask.data[bounds[row]] == 0;
  for (int64_t i = 0; fine && i < count; i++) fine = mask.data[i] <= 1 && ids[i] >= 0 && ids[i] < vocab_size;
  if (!fine) throw refuse("a mask or a token out of range", "mask of 0 and 1, 0 at the start of a row; ids that the model knows");
  return std::make_unique<BundleRows>(ids, mask.data, bounds, static_cast<size_t>(ends - 1));
}

std::unique_ptr<RowSource> bundle_rows(Bundle& bundle, const std::optional<std::string>& name) {
  return name ? bundle_rows(bundle.tensors(*name), *name, bundle.manifest().vocab_size) : no_rows();
}

}  // namespace bespoke
