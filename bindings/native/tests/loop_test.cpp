// SPDX-License-Identifier: Apache-2.0
// Noise, batches, schedule and the gate against vectors made elsewhere; the memory guard against pages that are really taken.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "format/json.h"
#include "train/evaluate.h"
#include "train/judged.h"
#include "exec/memory_guard.h"
#include "exec/noise.h"
#include "platform/memory.h"
#include "train/run_length.h"
#include "train/schedule.h"

using namespace bespoke;
using Vectors = nlohmann::json;

namespace {

Vectors vectors(const char* name) {
  std::ifstream file(std::filesystem::path(BESPOKE_CONFORMANCE) / name);
  REQUIRE(file.good());
  return Vectors::parse(file);
}

uint64_t hexadecimal(const Vectors& text) { return std::stoull(text.get<std::string>(), nullptr, 16); }

int64_t ordered(float value) {  // representable numbers counted from zero
  int32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits < 0 ? -int64_t{bits & 0x7FFFFFFF} : bits;
}

class VectorRows : public RowSource {
 public:
  VectorRows(const Vectors& rows, int64_t first, size_t count) : rows_(rows), first_(first), count_(count) {}
  size_t size() const override { return count_; }
  size_t length(size_t row) const override { return at(row)["tokens"].size(); }
  size_t rejected_length(size_t row) const override { return at(row).contains("rejected") ? at(row)["rejected"]["tokens"].size() : 0; }
  void read(size_t row, Row& into) const override {
    into = {at(row)["tokens"], at(row)["mask"]};
    if (!rejected_length(row)) return;
    into.rejected_tokens = at(row)["rejected"]["tokens"].get<std::vector<int32_t>>();
    into.rejected_mask = at(row)["rejected"]["mask"].get<std::vector<uint8_t>>();
  }

 private:
  const Vectors& at(size_t row) const { return rows_.at(std::to_string(first_ + static_cast<int64_t>(row))); }
  const Vectors& rows_;
  int64_t first_;
  size_t count_;
};

Vectors arrays_of(const Batch& batch) {
  Vectors found = Vectors::object();
  for (const auto& [name, array] : batch.arrays) found[name] = std::vector<int>(array.numbers.begin(), array.numbers.end());
  return found;
}

Vectors as_json(const Batch& batch) {
  return {{"source", name_of(batch.source)},
          {"rows", batch.row_numbers},
          {"sequence_length", batch.sequence_length},
          {"tokens_trained", batch.tokens_trained},
          {"tokens", batch.tokens},
          {"targets", batch.targets},
          {"mask", std::vector<int>(batch.mask.begin(), batch.mask.end())},
          {"arrays", arrays_of(batch)}};
}

class OneRow : public RowSource {
 public:
  explicit OneRow(Row row) : row_(std::move(row)) {}
  size_t size() const override { return 1; }
  size_t length(size_t) const override { return row_.tokens.size(); }
  void read(size_t, Row& into) const override { into = row_; }

 private:
  Row row_;
};

template <class F>
Error error_of(F&& attempt) {
  try {
    attempt();
  } catch (const Error& error) {
    return error;
  }
  FAIL("no error");
  return Error(Kind::Internal, "", "", "", "");
}

// Takes `bytes` of anonymous memory for as long as it lives.
class Taken {
 public:
  explicit Taken(size_t bytes) : bytes_(bytes) {
    memory_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory_ != MAP_FAILED);
    std::memset(memory_, 1, bytes);
  }
  ~Taken() { ::munmap(memory_, bytes_); }

 private:
  size_t bytes_;
  void* memory_;
};

}  // namespace

TEST_CASE("philox gives the words of Random123") {
  const Vectors document = vectors("noise.json");
  REQUIRE(document["philox4x32_10"].size() == 3);
  for (const Vectors& known : document["philox4x32_10"]) {
    Words counter, words;
    for (size_t i = 0; i < 4; i++) counter[i] = static_cast<uint32_t>(hexadecimal(known["counter"][i]));
    for (size_t i = 0; i < 4; i++) words[i] = static_cast<uint32_t>(hexadecimal(known["words"][i]));
    CHECK(philox(counter, hexadecimal(known["key"][1]) << 32 | hexadecimal(known["key"][0])) == words);
  }
}

TEST_CASE("noise is that of the shared vectors, however the tensor is cut") {
  const Vectors document = vectors("noise.json");
  REQUIRE(document["tests"].size() == 15);
  for (const Vectors& test : document["tests"]) {
    INFO(test["comment"].get<std::string>());
    int64_t size = 1;
    for (int64_t extent : test["shape"]) size *= extent;
    for (size_t i = 0; i < test["places"].size(); i++) {
      const int64_t place = test["places"][i];
      const int64_t first = place / 4 * 4;  // of its counter
      float piece[12];
      const int64_t count = std::min<int64_t>(12, size - first);
      noise(piece, count, hexadecimal(test["seed"]), test["step"], test["query"], test["block"], test["tensor"],
            one_of<Distribution>(test["distribution"]), first);
      const auto bits = static_cast<uint32_t>(hexadecimal(test["float32_bits"][i]));
      float expected;
      std::memcpy(&expected, &bits, sizeof expected);
      CHECK(std::abs(ordered(piece[place - first]) - ordered(expected)) <= test["tolerance_ulp"].get<int64_t>());
    }
  }
}

TEST_CASE("noise is the same by several threads, in any order") {
  for (const Distribution distribution : {Distribution::normal, Distribution::rademacher}) {
    std::vector<float> expected(3 * 4096 + 4), found(expected.size(), 7.0f);
    for (size_t i = 0; i < expected.size(); i += 4) noise(&expected[i], 4, 1, 2, 3, 4, 5, distribution, static_cast<int64_t>(i));
    std::atomic<size_t> tasks = 0;
    const auto backwards = [](void* pool, size_t count, void (*task)(void*, size_t), void* shared) {
      std::vector<std::thread> threads;
      for (size_t i = count; i-- > 0;) threads.emplace_back(task, shared, i);
      for (std::thread& thread : threads) thread.join();
      *static_cast<std::atomic<size_t>*>(pool) += count;
    };
    noise(found.data(), static_cast<int64_t>(found.size()), 1, 2, 3, 4, 5, distribution, 0, {backwards, &tasks, 4});
    CHECK(std::memcmp(found.data(), expected.data(), expected.size() * sizeof(float)) == 0);
    CHECK(tasks == 4);
  }
}

TEST_CASE("noise writes its elements and none behind them") {
  float values[8] = {7, 7, 7, 7, 7, 7, 7, 7};
  noise(values, 5, 1, 2, 3, 4, 5, Distribution::normal);
  CHECK(values[4] != 7);
  CHECK(values[5] == 7);
  CHECK(error_of([&] { noise(values, 1, 0, 0, 1u << 31, 0, 0, Distribution::normal); }).subject == "noise: query");
}

TEST_CASE("the cursor hands out the batches of the reference") {
  const Vectors document = vectors("batches.json");
  for (const Vectors& test : document["cursors"]) {
    INFO(test["comment"].get<std::string>());
    const VectorRows user(document["rows"], 0, test["user"]), general(document["rows"], 100, test["general"]);
    BatchCursor cursor(user, general,
                       {test["seed"], test["batch_size"], test["accumulation"], document["sequence_lengths"], test["general_share"],
                        document["vocab_size"], test["pairs"]});
    const Vectors& from = test["from"];
    CursorState state{from["step"], from["user_position"], from["general_position"]};
    std::vector<Batch> batches;  // one for all steps: what a step leaves in it must not show
    for (const Vectors& expected : test["expected"]) {
      state = cursor.step(state, batches);
      REQUIRE(batches.size() == expected.size());
      for (size_t i = 0; i < batches.size(); i++) CHECK(as_json(batches[i]) == expected[i]);
    }
    CHECK(state.step == test["ends_at"]["step"]);
    CHECK(state.user_position == test["ends_at"]["user_position"]);
    CHECK(state.general_position == test["ends_at"]["general_position"]);
  }
}

TEST_CASE("evaluation takes each row once, in the order of the reference") {
  const Vectors document = vectors("batches.json");
  for (const Vectors& test : document["evaluations"]) {
    const VectorRows rows(document["rows"], 0, test["rows"]);
    EvaluationBatches batches(rows, test["batch_size"], document["sequence_lengths"], document["vocab_size"]);
    Vectors found = Vectors::array();
    for (Batch batch; batches.next(batch);) found.push_back(as_json(batch));
    CHECK(found == test["expected"]);
  }
}

TEST_CASE("the gate looks at the rows of the reference") {
  const Vectors document = vectors("batches.json");
  REQUIRE(document["judged"].size() == 6);
  for (const Vectors& test : document["judged"]) {
    INFO(test["comment"].get<std::string>());
    const Vectors& pattern = test["pattern"];
    std::vector<RowPlace> rows;
    for (int64_t number = 0; number < test["rows"].get<int64_t>(); number++)
      rows.push_back({number, 0, pattern[static_cast<size_t>(number) % pattern.size()]});
    Vectors found = Vectors::array();
    for (const RowPlace& row : judged_rows(rows)) found.push_back(row.example);
    CHECK(found == test["expected"]);
  }
}

TEST_CASE("a row that no batch can take is named") {
  const auto none = no_rows();
  const auto refused = [&](Row row) {
    const OneRow rows(std::move(row));
    BatchCursor cursor(rows, *none, {0, 1, 1, {4}, 0, 10});
    std::vector<Batch> batches;
    return error_of([&] { cursor.step({}, batches); });
  };
  CHECK(refused({{1}, {1}}).got == "1 tokens");
  CHECK(refused({{1, 2, 3, 4, 5, 6}, {0, 1, 1, 1, 1, 1}}).expected == "at most 5: one more than the longest sequence length");
  CHECK(refused({{1, 2, 3}, {1, 0, 0}}).got == "no token to train on");
  CHECK(refused({{1, 10}, {0, 1}}).got == "token 10");
  CHECK(refused({{1, -1}, {0, 1}}).kind == Kind::Data);
  CHECK(error_of([&] { BatchCursor(*none, *none, {}); }).subject == "training data");
}

TEST_CASE("a bundle's rows are held against their own offsets before they are used") {
  std::vector<int32_t> tokens{1, 2, 3, 4, 5};
  std::vector<uint8_t> mask{0, 1, 0, 1, 1};
  std::vector<int64_t> offsets{0, 2, 5};
  const auto rows = [&] {
    const auto bytes = [](auto& values) { return reinterpret_cast<const uint8_t*>(values.data()); };
    const auto size = [](auto& values) { return static_cast<int64_t>(values.size()); };
    return bundle_rows({{"tokens", {DType::int32, {size(tokens)}, bytes(tokens), tokens.size() * 4}},
                        {"mask", {DType::uint8, {size(mask)}, bytes(mask), mask.size()}},
                        {"offsets", {DType::int64, {size(offsets)}, bytes(offsets), offsets.size() * 8}}},
                       "data/train.safetensors", 10);
  };
  Row row;
  rows()->read(1, row);
  CHECK(row.tokens == std::vector<int32_t>{3, 4, 5});
  CHECK(row.mask == std::vector<uint8_t>{0, 1, 1});
  for (const std::vector<int64_t>& wrong :
       std::vector<std::vector<int64_t>>{{0, 2, 6}, {0, 4, 5}, {1, 3, 5}, {0, int64_t{1} << 62, 5}, {0, -4, 5}, {0, 2}, {}}) {
    offsets = wrong;
    CHECK(error_of(rows).kind == Kind::Bundle);
  }
  offsets = {0, 2, 5};
  tokens[3] = 10;
  CHECK(error_of(rows).got == "a mask or a token out of range");
}

TEST_CASE("runs are as long as those of the reference") {
  const Vectors document = vectors("batches.json");
  REQUIRE(document["run_lengths"].size() == 10);
  for (const Vectors& test : document["run_lengths"]) {
    Training training{};
    if (!test["steps"].is_null()) training.steps = test["steps"].get<int64_t>();
    training.batch_size = test["batch_size"];
    training.accumulation = test["accumulation"];
    training.general_share = test["general_share"];
    CHECK(run_length(training, test["user"], test["general"]) == test["expected"].get<int64_t>());
  }
}

TEST_CASE("learning rates are those of the reference") {
  const Vectors document = vectors("batches.json");
  REQUIRE(document["schedules"].size() == 15);
  for (const Vectors& test : document["schedules"])
    for (int64_t step = 1; step <= static_cast<int64_t>(test["rates"].size()); step++) {
      const double rate = test["rates"][static_cast<size_t>(step - 1)];
      const Schedule schedule = one_of<Schedule>(test["schedule"]);
      const double got = learning_rate_at(step, test["peak"], schedule, test["warmup_steps"], test["total_steps"]);
      CHECK(std::fabs(got - rate) <= 1e-15 * std::fabs(rate));
    }
  CHECK(error_of([] { learning_rate_at(0, 1, Schedule::constant, 0, 1); }).kind == Kind::Config);
}

TEST_CASE("the footprint counts a page when it is touched and until it is given back") {
  const MemoryColumns columns;
  const int64_t before = columns.read().total(), size = 64 << 20;
  {
    const Taken taken(static_cast<size_t>(size));
    CHECK(std::abs(columns.read().total() - before - size) < 4 << 20);
  }
  CHECK(std::abs(columns.read().total() - before) < 4 << 20);
}

TEST_CASE("the guard refuses what would go over the limit, and sees what was taken without asking") {
  release_free_memory();  // of the tests before this one: the guard does so too
  const int64_t idle = MemoryColumns().read().total(), megabyte = 1 << 20;
  Limits limits, none;
  limits.added_bytes = idle + 40 * megabyte;
  MemoryGuard guard(limits);
  guard.ask(20 * megabyte, "a call");
  CHECK(error_of([&] { guard.ask(45 * megabyte, "a large call"); }).kind == Kind::Budget);
  const Taken taken(static_cast<size_t>(30 * megabyte));
  // Within a millisecond of the last reading, which left room: what is asked since is added up, so this is read again.
  CHECK(error_of([&] { guard.ask(15 * megabyte, "another call"); }).subject == "another call");
  CHECK(guard.peak() >= idle + 29 * megabyte);
  MemoryGuard(none).ask(int64_t{1} << 50, "anything");
}

TEST_CASE("a step's peak is its own, the guard's is that of all") {
  const Limits none;
  MemoryGuard guard(none);
  guard.begin_step();
  {
    const Taken taken(32 << 20);
    guard.observe();
  }
  const int64_t first = guard.step_peak().total();
  guard.begin_step();
  CHECK(guard.step_peak().total() < first - (24 << 20));
  CHECK(guard.peak() == first);
}

TEST_CASE("dirty pages of mapped files are counted, private copies are not") {
  char path[] = "/var/tmp/bespoke_dirty_XXXXXX";
  const int file = ::mkstemp(path);
  REQUIRE(file >= 0);
  ::unlink(path);
  const size_t size = 8 << 20;
  REQUIRE(::ftruncate(file, static_cast<off_t>(size)) == 0);
  const int64_t before = dirty_mapped_bytes();
  void* shared = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  std::memset(shared, 1, size);
  CHECK(dirty_mapped_bytes() - before >= static_cast<int64_t>(size / 2));
  ::munmap(shared, size);
  void* copied = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
  std::memset(copied, 2, size);
  CHECK(dirty_mapped_bytes() - before < static_cast<int64_t>(size / 2));
  ::munmap(copied, size);
  ::close(file);
}
