// SPDX-License-Identifier: Apache-2.0
// An app in a hurry: threads that add, list, forget, train, judge, converse, cancel and change limits on one model, as fast as they can.
//
//   stress_lab app|engine|store BUNDLE STATE MILLISECONDS SEED [ANSWER...]
//
// `app` has all threads and an engine that computes nothing, `engine` the core's own; `store` has the threads of the store's verbs
// alone, as another process on the same state. A busy machine gets up to a minute more, until each ANSWER was given once (a verb, or a verb
// and its error's kind). Ends with 1 where a call answers what it may not, and tells as JSON how often each call was answered what.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "bespoke.h"

namespace {

using Clock = std::chrono::steady_clock;

bespoke_text text(std::string_view words) { return {words.data(), words.size()}; }

// ---- an engine that computes nothing ---------------------------------------------------------------------------------------

const bespoke_tensor& tensor(const bespoke_tensor* const* tensors, size_t index) { return *tensors[index]; }

int fill(const bespoke_tensor& result) {
  int64_t elements = 1;
  for (int32_t i = 0; i < result.rank; i++) elements *= result.shape[i];
  if (result.dtype == BESPOKE_FLOAT32)
    std::fill_n(static_cast<float*>(result.data), elements, 0.01f);
  else if (result.dtype == BESPOKE_INT64)
    std::fill_n(static_cast<int64_t*>(result.data), elements, 0);
  else
    return 1;
  return 0;
}

int program;
void place(void** found) { *found = &program; }
template <class Other>
void place(Other) {}

bespoke_engine fake_engine() {
  bespoke_engine engine{};
  engine.struct_size = sizeof engine;
  engine.target = "executorch";
  engine.open = [](auto... given) -> int { return (place(given), ...), 0; };
  engine.run = [](void*, void*, auto, size_t, auto results, size_t count, char*, size_t) -> int {
    for (size_t i = 0; i < count; i++)
      if (fill(tensor(results, i))) return 1;
    return 0;
  };
  engine.close = [](void*, void*) {};
  return engine;
}

// ---- what is done -----------------------------------------------------------------------------------------------------------

class Stress {
 public:
  Stress(bespoke_model* model, int64_t milliseconds, std::vector<std::string> awaited)
      : model_(model), end_(Clock::now() + std::chrono::milliseconds(milliseconds)), awaited_(std::move(awaited)) {}

  // Adds, lists and forgets examples of its own; what it has added and not forgotten is listed at the end.
  void keep_examples(unsigned seed, const std::string& name) {
    std::mt19937 random(seed);
    std::vector<std::string> mine;
    for (int number = 0; more(); number++) {
      const unsigned what = random() % 8;
      if (what < 4 || mine.empty()) {
        const std::string id = name + std::to_string(number);
        const std::string json = "{\"tokens\": [" + std::to_string(1 + random() % 100) + ", 2, 3, " + std::to_string(number) + " ]}";
        const std::string small = "{\"tokens\": [" + std::to_string(1 + random() % 100) + ", 2, 3], \"of\": \"" + id + "\"}";
        bespoke_example example{};
        example.struct_size = sizeof example;
        example.json = text(number % 100 ? small : json), example.id = text(id);
        if (call("add", {BESPOKE_DATA_ERROR}, bespoke_add_example, &example, nullptr, nullptr) == BESPOKE_OK) mine.push_back(id);
      } else if (what < 6) {
        const size_t which = random() % mine.size();
        call("forget", {}, bespoke_forget_example, text(mine[which]), nullptr, nullptr);
        mine.erase(mine.begin() + static_cast<ptrdiff_t>(which));
      } else if (what == 6) {
        call("list", {}, bespoke_list_examples, text(""), int64_t{0}, nullptr);
        call("count", {}, bespoke_count_examples, nullptr);
      } else {
        call("run", {}, bespoke_current_run, nullptr);
        call("versions", {}, bespoke_list_versions, nullptr);
        call("check", {}, bespoke_check_training, nullptr);
      }
    }
    const std::lock_guard<std::mutex> alone(lock_);
    kept_.insert(kept_.end(), mine.begin(), mine.end());
  }

  // What only the holder of the trainer's lock may do, now and then.
  void take_back(unsigned seed) {
    std::mt19937 random(seed);
    while (more()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20 + random() % 200));
      const unsigned what = random() % 4;
      if (what < 2)
        call("rollback", {BESPOKE_STATE_LOCKED}, bespoke_rollback, nullptr, nullptr);
      else if (what == 2)
        call("abandon", {BESPOKE_STATE_LOCKED}, bespoke_abandon_run, nullptr, nullptr);
      else
        call("reset", {BESPOKE_STATE_LOCKED}, bespoke_reset, nullptr);
    }
  }

  void compute(unsigned seed, bool trains) {
    std::mt19937 random(seed);
    while (more()) {
      const auto cancel = new_cancel(trains ? training_ : judging_);
      bespoke_call settings{};
      settings.struct_size = sizeof settings;
      settings.cancel = cancel.get();
      settings.deadline_seconds = random() % 4 ? 0 : 0.01;
      if (trains) {
        bespoke_training training{};
        training.struct_size = sizeof training;
        training.run_steps = 6;
        training.most_steps = 1 + random() % 6;
        training.new_run = random() % 8 == 0;
        call("train",
             {BESPOKE_BUSY, BESPOKE_CANCELLED, BESPOKE_BUDGET_EXCEEDED, BESPOKE_DATA_ERROR, BESPOKE_STATE_LOCKED, BESPOKE_STATE_ERROR},
             bespoke_train, &training, &settings, nullptr);
        std::this_thread::sleep_for(std::chrono::milliseconds(random() % 30));  // the others are to compute too
      } else {
        const std::string examples = random() % 2 ? "[{\"tokens\": [5, 6, 7, 8]}]" : "";
        call("evaluate", {BESPOKE_BUSY, BESPOKE_CANCELLED, BESPOKE_BUDGET_EXCEEDED, BESPOKE_DATA_ERROR}, bespoke_evaluate, text("train"),
             text(examples), &settings, nullptr);
        std::this_thread::sleep_for(std::chrono::milliseconds(random() % 5));
      }
    }
  }

  // Conversations of a few turns. Some are closed in the middle of an answer; what was cancelled, found the model busy or had no memory is
  // asked for again.
  void converse(unsigned seed) {
    std::mt19937 random(seed);
    while (more()) {
      bespoke_generation generation{};
      generation.struct_size = sizeof generation;
      generation.max_tokens = random() % 12;
      generation.temperature = random() % 2;
      generation.seed = random();
      bespoke_session* session = nullptr;
      call("session", {}, bespoke_session_open, &generation, &session);
      const std::unique_ptr<bespoke_session, void (*)(bespoke_session*)> held(session, bespoke_session_close);
      for (unsigned turns = random() % 4; turns && more(); turns--) {
        std::string prompt = "[1";
        for (unsigned more = random() % 20; more; more--) prompt += ", " + std::to_string(1 + random() % 100);
        call_on(session, "feed", {}, bespoke_session_feed, text(prompt + "]"));
        for (unsigned asked = random() % 30; asked && more() && !next(session, random()); asked--)
          std::this_thread::sleep_for(std::chrono::milliseconds(random() % 4));  // the others are to compute too
      }
    }
  }

  // What a core without an engine has to say.
  void compute_without_an_engine() {
    call("evaluate", {BESPOKE_MISSING_DEPENDENCY, BESPOKE_DATA_ERROR}, bespoke_evaluate, text("train"), text(""), nullptr, nullptr);
  }

  void change(unsigned seed) {
    std::mt19937 random(seed);
    while (more()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 20));
      const unsigned what = random() % 8;
      if (what < 3)
        call("pace", {}, bespoke_set_pace, 0.2 + 0.8 * (random() % 5) / 4);
      else if (what < 6)
        call("limit", {}, bespoke_set_limit, random() % 8 ? -1.0 : 1.0);
      else {
        const std::lock_guard<std::mutex> alone(lock_);
        const std::shared_ptr<bespoke_cancel>* which[] = {&training_, &judging_, &answering_};
        if (const auto& cancel = *which[random() % 3]) bespoke_cancel_set(cancel.get());
      }
    }
    call("limit", {}, bespoke_set_limit, -1.0);
  }

  // Whether every call was answered as it may be; tells what was answered.
  bool tell() {
    std::string said;
    for (const auto& [what, count] : answers_) said += (said.empty() ? "" : ", ") + ("\"" + what + "\": " + std::to_string(count));
    std::string kept;
    for (const std::string& id : kept_) kept += (kept.empty() ? "\"" : ", \"") + id + "\"";
    std::printf("{\"answers\": {%s}, \"kept\": [%s]}\n", said.c_str(), kept.c_str());
    return !failed_;
  }

 private:
  bool more() {
    const Clock::time_point now = Clock::now();
    if (failed_) return false;
    return now < end_ || (now < end_ + std::chrono::minutes(1) && awaits_an_answer());
  }

  bool awaits_an_answer() {
    const std::lock_guard<std::mutex> alone(lock_);
    return std::any_of(awaited_.begin(), awaited_.end(), [&](const std::string& answer) { return !answers_.count(answer); });
  }

  std::shared_ptr<bespoke_cancel> new_cancel(std::shared_ptr<bespoke_cancel>& place) {
    const std::shared_ptr<bespoke_cancel> cancel(bespoke_cancel_new(), bespoke_cancel_free);
    const std::lock_guard<std::mutex> alone(lock_);
    return place = cancel;
  }

  // Whether the answer has ended.
  bool next(bespoke_session* session, unsigned chance) {
    const auto cancel = new_cancel(answering_);
    bespoke_call settings{};
    settings.struct_size = sizeof settings;
    settings.cancel = cancel.get();
    settings.deadline_seconds = chance % 8 ? 0 : 0.001;
    if (chance % 5 == 0) bespoke_cancel_set(cancel.get());
    const bespoke_piece* piece = nullptr;
    call_on(session, "next", {BESPOKE_BUSY, BESPOKE_CANCELLED, BESPOKE_BUDGET_EXCEEDED}, bespoke_session_next, &settings, &piece);
    return piece && piece->ended != BESPOKE_GOES_ON;
  }

  template <class Function, class... Arguments>
  bespoke_status call(const char* what, const std::set<bespoke_status>& allowed, Function function, Arguments... arguments) {
    return call_on(model_, what, allowed, function, arguments...);
  }

  template <class Object, class Function, class... Arguments>
  bespoke_status call_on(Object* object, const char* what, const std::set<bespoke_status>& allowed, Function function,
                         Arguments... arguments) {
    bespoke_error* error = nullptr;
    const bespoke_status status = function(object, arguments..., &error);
    if (status && !allowed.count(status)) {
      failed_ = true;
      std::fprintf(stderr, "%s: %s: %s: got %s; expected %s\n", what, error->kind, error->subject, error->got, error->expected);
    }
    const std::lock_guard<std::mutex> alone(lock_);
    answers_[what + std::string(status ? std::string(" ") + error->kind : "")]++;
    bespoke_error_free(error);
    return status;
  }

  bespoke_model* model_;
  const Clock::time_point end_;
  const std::vector<std::string> awaited_;
  std::atomic<bool> failed_{false};
  std::mutex lock_;  // of what follows
  std::shared_ptr<bespoke_cancel> training_, judging_, answering_;
  std::map<std::string, int> answers_;
  std::vector<std::string> kept_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) return 2;
  const std::string_view role = argv[1];
  const bool app = role != "store";
  const auto seed = static_cast<unsigned>(std::stoul(argv[5]));
  const bespoke_engine engine = fake_engine();
  bespoke_bundle bundle{};
  bundle.struct_size = sizeof bundle;
  bundle.path = text(argv[2]);
  bespoke_options options{};
  options.struct_size = sizeof options;
  options.memory_mb = -1;
  if (role == "app") options.engine = &engine;
  bespoke_model* model = nullptr;
  bespoke_error* error = nullptr;
  if (bespoke_open(&bundle, text(argv[3]), &options, nullptr, &model, &error)) {
    std::fprintf(stderr, "%s: got %s\n", error->subject, error->got);
    return 1;
  }
  Stress stress(model, std::stoll(argv[4]), {argv + 6, argv + argc});
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 2; i++) threads.emplace_back([&, i] { stress.keep_examples(seed + i, argv[1] + std::to_string(i) + "-"); });
  if (!app) threads.emplace_back([&] { stress.compute_without_an_engine(); });
  if (app) {
    threads.emplace_back([&] { stress.compute(seed + 2, true); });
    for (unsigned i = 3; i < 5; i++) threads.emplace_back([&, i] { stress.compute(seed + i, false); });
    for (unsigned i = 7; i < 9; i++) threads.emplace_back([&, i] { stress.converse(seed + i); });
    threads.emplace_back([&] { stress.change(seed + 5); });
    threads.emplace_back([&] { stress.take_back(seed + 6); });
  }
  for (std::thread& thread : threads) thread.join();
  bespoke_release(model);  // nothing runs any more
  return stress.tell() ? 0 : 1;
}
