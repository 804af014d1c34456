// SPDX-License-Identifier: Apache-2.0
// The state in one process. What it shares with the Python store, and what it survives, is tested from there
// (tests/native/test_state*.py).
#include <doctest/doctest.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "error.h"
#include "format/number_text.h"
#include "state/errors.h"
#include "state/tables.h"
#include "state/store.h"
#include "state/tensor_files.h"
#include "state/stored_text.h"

using namespace bespoke;

namespace {

struct Folder {  // removed when it goes
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "bespoke_state_XXXXXX").string();
    path = mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::vector<std::string> files(const std::string& start) const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(path))
      if (entry.path().filename().string().rfind(start, 0) == 0) found.push_back(entry.path().string());
    return found;
  }
  std::string path;
};

const int64_t kShape[] = {2, 3};
const std::string kBase(64, 'a');

std::vector<StateTensor> adapter(const float* a, const float* b) { return {{"q.lora_B", kShape, 2, b}, {"q.lora_A", kShape, 2, a}}; }
std::vector<StateTensor> pieces() { return adapter(nullptr, nullptr); }

template <class Work>
Error error_of(Work work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  }
  FAIL("no error");
  return Error(Kind::Internal, "", "", "", "");
}

const float kA[] = {1, -0.f, 3e-45f, std::numeric_limits<float>::infinity(), 5, 6};
const float kB[] = {-1, 2, 3, 4, 5, 6.5f};

}  // namespace

TEST_CASE("numbers are spelled as Python spells them") {
  CHECK(repr_of(0.1) == "0.1");
  CHECK(repr_of(-0.0) == "-0.0");
  CHECK(repr_of(100) == "100.0");
  CHECK(repr_of(1e15) == "1000000000000000.0");
  CHECK(repr_of(1e16) == "1e+16");
  CHECK(repr_of(0.0001) == "0.0001");
  CHECK(repr_of(0.00001) == "1e-05");
  CHECK(repr_of(1.5e-300) == "1.5e-300");
  CHECK(repr_of(2.0 / 3) == "0.6666666666666666");
  CHECK(repr_of(std::nan("")) == "nan");
  CHECK(repr_of(-HUGE_VAL) == "-inf");
  CHECK(step_metrics_json(7, std::nan(""), true) == R"({"loss":"nan","rejected":true,"step":7})");
  const double loss = 1.25;
  CHECK(judgement_json(&loss, nullptr) == R"({"validation_loss":1.25,"validation_loss_before":null})");
}

TEST_CASE("text is a JSON object or it is not, Python's NaN included") {
  CHECK(is_json_object(R"({"a":[1,2],"b":NaN,"c":-Infinity})"));
  CHECK(is_json_object(R"({"NaN \" NaN":1})"));
  CHECK_FALSE(is_json_object("[]"));
  CHECK_FALSE(is_json_object(R"({"a":Na})"));
  CHECK_FALSE(is_json_object(R"({"a":NaNs})"));
  CHECK_FALSE(is_json_object(""));
  CHECK_FALSE(is_json_object("{\"a\":" + std::string(100000, '[')));
}

TEST_CASE("optimizer state belongs to the piece before its last dot") {
  const TensorShapes shapes(pieces());
  CHECK(shapes.find("q.lora_A") == 0);
  CHECK(shapes.find("q.lora_B") == 1);
  CHECK(shapes.find("q.lora_C") == -1);
  CHECK(shapes.owns("q.lora_B.m"));
  for (const char* name : {"q.lora_B", "q.lora_B.", "q.lora_B.m.n", "q", "", ".", "m"}) CHECK_FALSE(shapes.owns(name));
  CHECK(shapes.json() == R"({"q.lora_A": [2, 3], "q.lora_B": [2, 3]})");
}

TEST_CASE("names of tensor files") {
  CHECK(is_tensor_file_name("slot_00000001_0123abcd.safetensors"));
  CHECK(is_tensor_file_name("accepted_1234567890123456789_00000000.safetensors"));
  CHECK(is_tensor_file_name("best_00000012_0123abcd.safetensors"));
  for (const char* name : {"slot_1_0123abcd.safetensors", "slot_00000001_0123ABCD.safetensors", "../slot_00000001_0123abcd.safetensors",
                           "slot_00000001_0123abcd.safetensors.partial", "slot_.safetensors", "scratch"})
    CHECK_FALSE(is_tensor_file_name(name));
}

TEST_CASE("a run, its commits, its journal and its adapter come back from a store that is opened again") {
  Folder folder;
  int64_t run = 0, version = 0;
  {
    auto store = StateStore::open(folder.path + "/", kBase, pieces());
    CHECK(store->folder() == folder.path);
    CHECK_FALSE(store->current_run());
    CHECK_FALSE(store->current_version());
    run = store->start_run("mesp", 3, R"({"training":{}})", 10, std::nullopt).id;
    CHECK_FALSE(store->latest_slot(run, pieces()));
    CHECK(store->commit_step(run, 1, cursor_json({1, 4, 0}), adapter(kA, kB), {step_metrics_json(1, 2.5, false)}));
    CHECK(store->append_journal(run, {{2, cursor_json({2, 5, 0}), {1.5f, -0.f}, false, step_metrics_json(2, 2, false)},
                                      {3, cursor_json({3, 6, 0}), {}, true, step_metrics_json(3, std::nan(""), true)}}));
    version = store->accept(run, 2, adapter(kB, kB), "{}").value();
  }
  auto store = StateStore::open(folder.path, kBase, pieces());
  const Run found = store->current_run().value();
  CHECK(found.id == run);
  CHECK(found.step == 3);
  CHECK(cursor_from_json(found.cursor, "cursor").user_position == 6);
  const Slot slot = std::move(store->latest_slot(run, pieces()).value());
  CHECK(slot.step == 1);
  REQUIRE(slot.tensors.all().size() == 2);
  CHECK(slot.tensors.all()[0].name == "q.lora_A");
  CHECK(std::memcmp(slot.tensors.find("q.lora_A")->data, kA, sizeof kA) == 0);
  CHECK(slot.tensors.find("q.lora_B")->shape[1] == 3);
  CHECK(slot.tensors.find("q") == nullptr);
  const JournalRow second = store->next_journal_row(run, 1).value(), third = store->next_journal_row(run, 2).value();
  CHECK(second.values.size() == 2);
  CHECK(std::signbit(second.values[1]));
  CHECK(third.rejected);
  CHECK_FALSE(store->next_journal_row(run, 3));
  std::vector<std::string> metrics;
  store->each_metrics(run, true, [&](const std::string& text) { return metrics.push_back(text), metrics.size() < 2; });
  CHECK(metrics == std::vector<std::string>{step_metrics_json(3, std::nan(""), true), step_metrics_json(2, 2, false)});
  CHECK(store->current_version()->id == version);
  CHECK(store->load_version(version).find("q.lora_A")->data[5] == 6.5f);
}

TEST_CASE("a slot that is in use outlives the commits that follow, on disk are two") {
  Folder folder;
  auto store = StateStore::open(folder.path, kBase, pieces());
  const int64_t run = store->start_run("mesp", 0, "{}", 10, std::nullopt).id;
  store->commit_step(run, 1, "{}", adapter(kA, kB));
  const Slot slot = std::move(store->latest_slot(run, pieces()).value());
  for (int64_t step = 2; step < 6; step++) CHECK(store->commit_step(run, step, "{}", adapter(kB, kA)));
  CHECK(folder.files("slot_").size() == 2);
  CHECK(std::memcmp(slot.tensors.find("q.lora_A")->data, kA, sizeof kA) == 0);
  CHECK(store->end_run(run, "finished"));
  CHECK(folder.files("slot_").empty());
  CHECK_FALSE(store->commit_step(run, 9, "{}", adapter(kA, kB)));
}

TEST_CASE("a slot keeps state of any shape, and is read by a method that keeps the same alone") {
  Folder folder;
  auto store = StateStore::open(folder.path, kBase, pieces());
  const int64_t run = store->start_run("mesp", 0, "{}", 10, std::nullopt).id;
  const int64_t three[] = {3}, four[] = {4}, large[] = {3, 2, 1};
  const float numbers[] = {7, 8, 9, 10, 11, 12};
  const auto with = [&](std::vector<StateTensor> states) {
    for (const StateTensor& piece : adapter(kA, kB)) states.push_back(piece);
    return states;
  };
  const auto kept =
      with({{"q.lora_A.rate", nullptr, 0, numbers + 5}, {"q.lora_A.row", three, 1, numbers}, {"q.lora_B.all", large, 3, numbers}});
  REQUIRE(store->commit_step(run, 1, "{}", kept));
  const Slot slot = std::move(store->latest_slot(run, kept).value());
  CHECK(slot.tensors.all().size() == 5);
  CHECK(slot.tensors.find("q.lora_A.rate")->rank == 0);
  CHECK(*slot.tensors.find("q.lora_A.rate")->data == 12);
  CHECK(std::memcmp(slot.tensors.find("q.lora_B.all")->data, numbers, sizeof numbers) == 0);

  struct Other {
    std::vector<StateTensor> expected;
    const char *tensor, *got, *wanted;
  };
  auto longer = kept, fewer = kept, more = kept;
  longer[1].shape = four;
  fewer.erase(fewer.begin() + 1);
  more.push_back({"q.lora_B.m", kShape, 2, nullptr});
  for (const Other& other :
       {Other{longer, "q.lora_A.row", "float32 [3]", "float32 [4]"}, Other{fewer, "q.lora_A.row", "float32 [3]", "no such tensor"},
        Other{more, "q.lora_B.m", "no such tensor", "float32 [2, 3]"}}) {
    const Error error = error_of([&] { store->latest_slot(run, other.expected); });
    CHECK(error.kind == Kind::State);
    CHECK(error.subject.find("slot_") != std::string::npos);
    CHECK(error.subject.find("tensor '" + std::string(other.tensor) + "'") != std::string::npos);
    CHECK(error.got == other.got);
    CHECK(error.expected.find(other.wanted) == 0);
  }
  for (const char* name : {"rate", "q.lora_C.m", "q.lora_A.m.n", "q.lora_A."})
    CHECK(error_of([&] { store->commit_step(run, 2, "{}", with({{name, nullptr, 0, numbers}})); }).kind == Kind::Adapter);
  const StateTensor turned{"q.lora_A", large, 2, kA};
  CHECK(error_of([&] { store->commit_step(run, 2, "{}", {turned, adapter(kA, kB)[0]}); }).got == "float32 [3, 2]");
}

TEST_CASE("what was committed is not taken back, and what is no state is not committed") {
  Folder folder;
  auto store = StateStore::open(folder.path, kBase, pieces());
  const int64_t run = store->start_run("mesp", 0, "{}", 10, std::nullopt).id;
  CHECK(store->commit_step(run, 5, "{}", adapter(kA, kB)));
  CHECK(error_of([&] { store->commit_step(run, 4, "{}", adapter(kA, kB)); }).kind == Kind::State);
  CHECK(error_of([&] { store->append_journal(run, {{5, "{}", {}, false, "{}"}}); }).kind == Kind::State);
  CHECK(error_of([&] { store->commit_step(run, 6, "[]", adapter(kA, kB)); }).subject == "cursor of a step");
  CHECK(error_of([&] { store->commit_step(run, 6, "{}", {}); }).kind == Kind::Adapter);
  auto twice = adapter(kA, kB);
  twice.push_back(twice[0]);
  CHECK(error_of([&] { store->commit_step(run, 6, "{}", twice); }).got == "two tensors of this name");
  CHECK(error_of([&] { store->accept(run, 2, adapter(kA, kB), "{}"); }).got == "NaN or infinity");
  CHECK(error_of([&] { store->start_run("mezo", 0, "{}", 1, std::nullopt); }).subject == "start of a run");
  CHECK(store->run(run).step == 5);
}

TEST_CASE("one trainer at a time; the scratch file of a killed one goes") {
  Folder folder;
  auto first = StateStore::open(folder.path, kBase, pieces()), second = StateStore::open(folder.path, kBase, pieces());
  std::ofstream(first->scratch_path()) << "of a killed trainer";
  {
    const auto lock = first->trainer_lock("a long training");
    CHECK_FALSE(std::filesystem::exists(first->scratch_path()));
    const Error error = error_of([&] { second->trainer_lock(); });
    CHECK(error.kind == Kind::StateLocked);
    CHECK(error.got.find("process " + std::to_string(getpid()) + " since ") != std::string::npos);
    CHECK(error.got.find("(a long training)") != std::string::npos);
  }
  second->trainer_lock();
}

TEST_CASE("another base or adapter is refused, and the error names the reset") {
  Folder folder;
  StateStore::open(folder.path, kBase, pieces());
  const Error base = error_of([&] { StateStore::open(folder.path, std::string(64, 'b'), pieces()); });
  CHECK(base.kind == Kind::State);
  CHECK(base.next_step.find("reset_for_new_base") != std::string::npos);
  auto other = pieces();
  other.pop_back();
  CHECK(error_of([&] { StateStore::open(folder.path, kBase, other); }).next_step.find("reset_for_new_base") != std::string::npos);
}

TEST_CASE("a database that others keep busy is unavailable, and no word is said of damage") {
  for (const int code : {SQLITE_BUSY, SQLITE_BUSY_SNAPSHOT, SQLITE_LOCKED, SQLITE_PROTOCOL}) {
    const Error error = from_sqlite(code, "database is locked", "state.sqlite");
    CHECK(error.kind == Kind::Unavailable);
    CHECK(error.next_step.find("delete") == std::string::npos);
  }
  CHECK(from_sqlite(SQLITE_IOERR_READ, "disk I/O error", "state.sqlite").kind == Kind::State);
}

TEST_CASE("two stores of one process share a folder") {
  Folder folder;
  auto one = StateStore::open(folder.path, kBase, pieces());
  auto other = StateStore::open(folder.path, kBase, pieces());
  const std::vector<TokenRow> rows = {{{1, 2, 3}, {0, 1, 1}}};
  const auto add = [&](StateStore& store, int number) {
    return store.add_example(StateStore::identified("{\"n\":" + std::to_string(number) + "}", std::nullopt), rows);
  };
  int held_out = 0;
  for (int number = 0; number < 40; number++) held_out += add(number % 3 ? *one : *other, number).split == Split::validation;
  CHECK(held_out >= 4);  // each counts what the other has added
  CHECK(one->example_count() == 40);
  CHECK(other->example_count(Split::validation) == held_out);
  CHECK_FALSE(add(*other, 1).created);
  Run run = one->start_run("mesp", 1, "{\"training\":{}}", 9, std::nullopt);
  CHECK(other->forget(one->run_example_ids(run.id)[7]).run_stopped);
  CHECK(one->ended_because(run.id) == "example_forgotten");
  CHECK_FALSE(one->append_journal(run.id, {{1, "{}", {1.f}, false, "{}"}}));
  other->import_version(adapter(kB, kB), "elsewhere");
  CHECK(one->current_version()->source == "elsewhere");
  CHECK_FALSE(one->rollback());
  CHECK(other->accepted().empty());
  {
    std::unique_ptr<TrainerLock> training = one->trainer_lock();
    CHECK(error_of([&] { other->trainer_lock(); }).kind == Kind::StateLocked);
    one->reset();
  }
  CHECK(other->example_count() == 39);
}

TEST_CASE("rows and ids that cannot be kept are refused") {
  Folder folder;
  auto store = StateStore::open(folder.path, kBase, pieces());
  const Identified example = StateStore::identified("{}", "x");
  for (const std::vector<TokenRow>& rows : std::vector<std::vector<TokenRow>>{{},
                                                                              {{{1, 2}, {0, 0}}},
                                                                              {{{1, 2}, {0, 1, 1}}},
                                                                              {{{1}, {0}}},
                                                                              {{{}, {}}},
                                                                              {{{1, -2}, {0, 1}}},
                                                                              {{{1, 2}, {0, 2}}},
                                                                              {{{1, 2}, {1, 1}}}})
    CHECK(error_of([&] { store->add_example(example, rows); }).kind == Kind::Data);
  CHECK(store->example_count() == 0);
  for (const std::string& id :
       {std::string(), std::string(257, 'x'), std::string("a\0b", 3), std::string("\xff"), std::string("\xed\xa0\x80")}) {
    CHECK(error_of([&] { StateStore::identified("{}", id); }).kind == Kind::Data);
    CHECK(error_of([&] { store->forget(id); }).kind == Kind::Data);
  }
  std::string longest;
  for (int i = 0; i < 256; i++) longest += "ü";
  CHECK(StateStore::identified("{}", longest).id == longest);
}
