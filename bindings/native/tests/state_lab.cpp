// SPDX-License-Identifier: Apache-2.0
// A state in the hands of a test: one action a line from stdin (JSON), one answer a line to stdout. With faults.c preloaded, `arm`
// lets a chosen call that changes a file fail, or end this process.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <csignal>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "error.h"
#include "format/hash.h"
#include "format/number_text.h"
#include "state/store.h"
#include "state/stored_text.h"

using bespoke::Split;
using bespoke::StateTensor;
using Json = nlohmann::json;

namespace {

// Tensors as a test passes them: names and shapes in the action, the numbers in a file, in the order of names.
class GivenTensors {
 public:
  explicit GivenTensors(const Json& action) {
    for (const auto& [name, shape] : action.at("tensors").items()) shapes_[name] = shape.get<std::vector<int64_t>>();
    size_t elements = 0;
    for (const auto& [name, shape] : shapes_)
      elements += static_cast<size_t>(StateTensor{name, shape.data(), rank(shape), nullptr}.elements());
    std::ifstream file(action.at("data").get<std::string>(), std::ios::binary);
    numbers_.resize(elements);
    file.read(reinterpret_cast<char*>(numbers_.data()), static_cast<std::streamsize>(4 * elements));
    const float* at = numbers_.data();
    for (const auto& [name, shape] : shapes_) {
      views.push_back({name, shape.data(), rank(shape), at});
      at += views.back().elements();
    }
  }
  std::vector<StateTensor> views;

 private:
  static int32_t rank(const std::vector<int64_t>& shape) { return static_cast<int32_t>(shape.size()); }
  std::map<std::string, std::vector<int64_t>> shapes_;
  std::vector<float> numbers_;
};

std::string digest(const bespoke::MappedTensors& tensors) {  // of names and bytes, as tests/native/state/states.py
  bespoke::RunningSha256 hash;
  for (const StateTensor& tensor : tensors.all()) {
    hash.add({reinterpret_cast<const uint8_t*>(tensor.name.data()), tensor.name.size()});
    hash.add({reinterpret_cast<const uint8_t*>(tensor.data), 4 * static_cast<size_t>(tensor.elements())});
  }
  return hash.finish();
}

Json content(const bespoke::MappedTensors& tensors) {  // name -> shape and its numbers' bits
  Json found = Json::object();
  for (const StateTensor& tensor : tensors.all()) {
    std::vector<uint32_t> bits(static_cast<size_t>(tensor.elements()));
    if (!bits.empty()) memcpy(bits.data(), tensor.data, 4 * bits.size());
    found[std::string(tensor.name)] = {std::vector<int64_t>(tensor.shape, tensor.shape + tensor.rank), bits};
  }
  return found;
}

std::vector<bespoke::TokenRow> token_rows(const Json& rows) {
  std::vector<bespoke::TokenRow> found;
  for (const Json& row : rows) {
    found.push_back({row.at(0), row.at(1)});
    if (row.size() < 4) continue;
    found.back().rejected_tokens = row[2].get<std::vector<int32_t>>();
    found.back().rejected_mask = row[3].get<std::vector<uint8_t>>();
  }
  return found;
}

template <class Value>
Json maybe(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

int64_t anonymous_bytes() {
  std::ifstream lines("/proc/self/status");
  for (std::string line; std::getline(lines, line);)
    if (line.compare(0, 8, "RssAnon:") == 0) return 1024 * std::strtoll(line.c_str() + 8, nullptr, 10);
  return -1;
}

class Lab {
 public:
  Json act(const Json& action) {
    const std::string what = action.at("do");
    if (what == "open") return open(action), Json();
    if (what == "close") return lock_.reset(), store_.reset(), Json();
    if (what == "identify") return identified(action).json;
    if (what == "add") {
      const bespoke::AddedExample added = store_->add_example(identified(action), token_rows(action.at("rows")),
                                                              action.value("use", "") == "train" ? bespoke::Use::train : bespoke::Use::any);
      return {added.id, name_of(added.split), added.created};
    }
    if (what == "examples") return examples();
    if (what == "rows") return rows(store_->rows(action.at("split") == "train" ? Split::train : Split::validation));
    if (what == "nearest notes") {
      Json found = Json::array();
      for (const bespoke::Note& note : store_->nearest_notes(action.at("question"), action.at("most"))) found.push_back(note.words);
      return found;
    }
    if (what == "forget") {
      const bespoke::Forgotten forgotten = store_->forget(action.at("id"));
      return {forgotten.example, forgotten.accepted_deleted, forgotten.run_stopped};
    }
    if (what == "rollback") return version(store_->rollback());
    if (what == "reset") return store_->reset(), Json();
    if (what == "import") {
      GivenTensors tensors(action);
      return store_->import_version(tensors.views, action.at("source"));
    }
    if (what == "reset for a new base") return reset_for_new_base(action), Json();
    if (what == "use text rules") return store_->use_text_rules(action.at("sha256"), asked_for_rows), Json();
    if (what == "current run") return current_run();
    if (what == "run record") return record(store_->run(action.at("run")));
    if (what == "slot") return slot(action.at("run"), kept(action));
    if (what == "journaled") return journal(action.at("run"), action.at("after"));
    if (what == "metrics") return metrics(action.at("run"));
    if (what == "accepted") return versions();
    if (what == "version") return content(store_->load_version(action.at("version")));
    if (what == "current version") return version(store_->current_version());
    if (what == "summary") return summary(kept(action));
    if (what == "start")
      return store_->start_run(action.at("method"), action.at("seed"), action.at("settings"), action.at("steps"), started_from(action)).id;
    if (what == "commit") return commit(action);
    if (what == "journal") return store_->append_journal(action.at("run"), journal_rows(action.at("rows")));
    if (what == "accept") {
      GivenTensors tensors(action);
      const int64_t run = action.at("run");
      const int64_t step = store_->ended_because(run) == "reset" ? 0 : store_->run(run).step;
      return maybe(store_->accept(run, step, tensors.views, action.at("metrics")));
    }
    if (what == "end") return store_->end_run(action.at("run"), action.at("reason"));
    if (what == "ended") return maybe(store_->ended_because(action.at("run")));
    if (what == "run") return run(store_->run(action.at("run")));
    if (what == "load") return digest(store_->load_version(action.at("version")));
    if (what == "lock") return lock_ = store_->trainer_lock(action.value("purpose", "training")), Json();
    if (what == "unlock") return lock_.reset(), Json();
    if (what == "hold_row") return held_ = store_->rows(Split::train).at(0), Json();
    if (what == "read_held") return read_held();
    if (what == "repr") return bespoke::repr_of(action.at("number").get<double>());
    if (what == "cursor") return cursor(action.at("text"));
    if (what == "grown") return grown_;  // anonymous bytes, by the last open or commit
    if (what == "arm") return arm(action), Json();
    if (what == "log") return log();
    return "no such action";
  }

 private:
  using Texts = std::vector<std::string>;
  using GivenShapes = std::map<std::string, std::vector<int64_t>>;

  void open(const Json& action) {
    adapter_ = action.at("adapter").get<GivenShapes>();
    const GivenShapes& shapes = adapter_;
    store_.reset();
    const int64_t before = anonymous_bytes();
    store_ = bespoke::StateStore::open(action.at("folder"), action.at("base"), adapter_of(shapes));
    grown_ = anonymous_bytes() - before;
  }

  // What the run's method keeps: as the action says, else the adapter with AdamW's two moments.
  GivenShapes kept(const Json& action) const {
    if (action.contains("kept")) return action.at("kept");
    GivenShapes shapes = adapter_;
    for (const auto& [name, shape] : adapter_) shapes[name + ".m"] = shapes[name + ".v"] = shape;
    return shapes;
  }

  static std::vector<StateTensor> adapter_of(const GivenShapes& shapes) {
    std::vector<StateTensor> adapter;
    for (const auto& [name, shape] : shapes) adapter.push_back({name, shape.data(), static_cast<int32_t>(shape.size()), nullptr});
    return adapter;
  }

  // The test is asked for the rows of each example, by a line of its own.
  static std::vector<bespoke::TokenRow> asked_for_rows(const std::string& json) {
    std::cout << Json{{"retokenize", json}}.dump() << std::endl;
    std::string line;
    std::getline(std::cin, line);
    const Json answer = Json::parse(line);
    if (answer.is_object())
      throw bespoke::Error(bespoke::Kind::Data, answer.at("subject"), answer.at("got"), answer.at("expected"), answer.at("next_step"));
    return token_rows(answer);
  }

  void reset_for_new_base(const Json& action) {
    adapter_ = action.at("adapter").get<GivenShapes>();
    const GivenShapes& shapes = adapter_;
    store_.reset();
    store_ = bespoke::StateStore::reset_for_new_base(action.at("folder"), action.at("base"), adapter_of(shapes), std::string(64, 'e'),
                                                     asked_for_rows);
  }

  static bespoke::Identified identified(const Json& action) {
    return bespoke::StateStore::identified(action.at("json"),
                                           action.contains("id") ? std::optional<std::string>(action["id"]) : std::nullopt);
  }

  Json examples() {
    Json found = Json::array();
    for (const bespoke::ExampleInfo& info : store_->examples())
      found.push_back({info.id, name_of(info.split), info.json, info.tokens, info.trained_tokens, info.rows, info.added_at});
    return found;
  }

  Json commit(const Json& action) {
    GivenTensors tensors(action);
    const Texts metrics = action.value("metrics", Texts());
    const std::string cursor = action.at("cursor");
    const int64_t run = action.at("run"), step = action.at("step"), before = anonymous_bytes();
    const bool committed = store_->commit_step(run, step, cursor, tensors.views, metrics);
    grown_ = anonymous_bytes() - before;
    return committed;
  }

  static std::optional<int64_t> started_from(const Json& action) {
    return action.contains("from") ? std::optional<int64_t>(action["from"]) : std::nullopt;
  }

  static std::vector<bespoke::JournalRow> journal_rows(const Json& rows) {
    std::vector<bespoke::JournalRow> found;
    for (const Json& row : rows) {
      std::vector<float> values;
      for (uint32_t bits : row.at("bits")) {
        values.emplace_back();
        memcpy(&values.back(), &bits, 4);
      }
      found.push_back({row.at("step"), row.at("cursor"), values, row.at("rejected"), row.at("metrics")});
    }
    return found;
  }

  static Json run(const bespoke::Run& run) {
    return {run.id, run.method, run.seed, run.settings, run.steps, maybe(run.started_from), run.step, run.cursor, maybe(run.ended_because)};
  }

  Json current_run() {
    std::optional<bespoke::Run> run = store_->current_run();
    return run ? record(*run) : Json();
  }

  Json record(const bespoke::Run& run) {
    return {run.id,
            run.method,
            run.seed,
            run.settings,
            run.steps,
            maybe(run.started_from),
            store_->run_example_ids(run.id),
            run.step,
            run.cursor,
            maybe(run.ended_because),
            run.started_at,
            maybe(run.ended_at)};
  }

  Json slot(int64_t run, const GivenShapes& kept) {
    std::optional<bespoke::Slot> slot = store_->latest_slot(run, adapter_of(kept));
    return slot ? Json{slot->step, slot->cursor, content(slot->tensors)} : Json();
  }

  Json journal(int64_t run, int64_t after) {
    Json found = Json::array();
    while (auto row = store_->next_journal_row(run, after)) {
      after = row->step;
      std::vector<uint32_t> bits(row->values.size());
      if (!bits.empty()) memcpy(bits.data(), row->values.data(), 4 * bits.size());
      found.push_back({row->step, row->cursor, bits, row->rejected, row->metrics});
    }
    return found;
  }

  Json metrics(int64_t run) {
    Json found = Json::array();
    store_->each_metrics(run, false, [&](const std::string& text) { return found.push_back(text), true; });
    return found;
  }

  static Json version(const std::optional<bespoke::Version>& version) {
    if (!version) return Json();
    return {version->id,          maybe(version->run),    version->step,      version->metrics,
            version->accepted_at, maybe(version->source), version->other_text};
  }

  Json versions() {
    Json found = Json::array();
    for (const bespoke::Version& one : store_->accepted()) found.push_back(version(one));
    return found;
  }

  Json rows(std::vector<bespoke::RowPlace> places) {
    Json found = Json::array();
    for (const bespoke::RowPlace& place : places) {
      std::vector<int32_t> tokens(static_cast<size_t>(place.length));
      std::vector<uint8_t> mask(tokens.size());
      if (!store_->read_row(place, tokens.data(), mask.data())) return "a row that is gone";
      found.push_back({place.window, tokens, mask});
    }
    return found;
  }

  Json summary(const GivenShapes& kept) {
    Json found;
    for (auto [split, name] : {std::pair{Split::train, "train"}, {Split::validation, "validation"}}) {
      found["count"][name] = store_->example_count(split);
      found["rows"][name] = rows(store_->rows(split));
    }
    found["examples"] = store_->example_count();
    std::optional<bespoke::Run> current = store_->current_run();
    for (const char* key : {"run", "slot", "journal", "metrics", "run_rows"}) found[key] = nullptr;
    if (current) {
      int64_t id = current->id;
      found["run"] = run(*current);
      found["run_rows"] = {rows(store_->rows(id, Split::train)), rows(store_->rows(id, Split::validation))};
      if (auto slot = store_->latest_slot(id, adapter_of(kept))) found["slot"] = {slot->step, slot->cursor, digest(slot->tensors)};
      found["journal"] = journal(id, -1);
      found["metrics"] = metrics(id);
      Json backwards = Json::array();
      store_->each_metrics(id, true, [&](const std::string& text) { return backwards.insert(backwards.begin(), text), true; });
      found["same_backwards"] = backwards == found["metrics"];
    }
    found["accepted"] = Json::array();
    for (const bespoke::Version& version : store_->accepted())
      found["accepted"].push_back(
          {version.id, maybe(version.run), version.step, version.metrics, maybe(version.source), digest(store_->load_version(version.id))});
    std::optional<bespoke::Version> answering = store_->current_version();
    found["answering"] = answering ? Json(answering->id) : Json();
    return found;
  }

  Json read_held() {
    std::vector<int32_t> tokens(static_cast<size_t>(held_.length));
    std::vector<uint8_t> mask(tokens.size());
    return store_->read_row(held_, tokens.data(), mask.data());
  }

  static Json cursor(const std::string& text) {
    bespoke::CursorState cursor = bespoke::cursor_from_json(text, "cursor");
    return bespoke::cursor_json(cursor);
  }

  static void arm(const Json& action) {
    auto faults_arm = reinterpret_cast<void (*)(long, int, int)>(dlsym(RTLD_DEFAULT, "faults_arm"));
    if (!faults_arm)
      throw bespoke::Error(bespoke::Kind::Internal, "faults", "no library of that kind", "faults.so preloaded", "Preload it");
    faults_arm(action.at("call"), action.at("mode"), action.at("error"));
  }

  static Json log() { return reinterpret_cast<const char* (*)()>(dlsym(RTLD_DEFAULT, "faults_log"))(); }

  GivenShapes adapter_;
  std::unique_ptr<bespoke::StateStore> store_;
  std::unique_ptr<bespoke::TrainerLock> lock_;
  bespoke::RowPlace held_{};
  int64_t grown_ = 0;
};

}  // namespace

int main() {
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is a full disk, said as one
  Lab lab;
  for (std::string line; std::getline(std::cin, line);) {
    Json answer;
    try {
      answer["value"] = lab.act(Json::parse(line));
    } catch (const bespoke::Error& error) {
      answer = {{"error", bespoke::name_of(error.kind)}, {"subject", error.subject}, {"got", error.got}, {"expected", error.expected},
                {"next_step", error.next_step},          {"text", error.message}};
    } catch (const std::exception& error) {
      answer = {{"error", "unexpected"}, {"text", error.what()}};
    }
    std::cout << answer.dump(-1, ' ', true, Json::error_handler_t::replace) << std::endl;
  }
}
