// SPDX-License-Identifier: Apache-2.0
// What the gate asks of an adapter's behaviour: its loss on the base's answers, and a few answers of its own.
#include <doctest/doctest.h>

#include "loop_fakes.h"
#include "train/behaviour.h"
#include "train/judged.h"
#include "train/stored_losses.h"

using namespace fakes;

namespace {

constexpr int32_t kToken = 46;  // that no example and no answer of the base has

using Tokens = std::vector<int64_t>;

// Answers by the number of the prompt; what follows the answers is kStop, or nothing that ends where they are endless.
struct Answers {
  std::function<Tokens(size_t)> of = [](size_t) { return Tokens{43, 44}; };
  bool endless = false;
  size_t prompts = 0, tokens = 0;     // that were asked for
  size_t stop_at = SIZE_MAX;          // number of the token before which a stop is asked for
  std::optional<float> b;             // of the adapter that answered
  int64_t machines_for_training = 0;  // that lived meanwhile
};

class AnsweringFake : public AnswerSteps {
 public:
  AnsweringFake(Script& script, Answers& answers) : script_(script), answers_(answers) {}
  void read(const Tokens&, const AdapterView& adapter) override {
    answer_ = answers_.of(answers_.prompts++);
    given_ = 0;
    answers_.b = *adapter.at("x.lora_B").data;
    answers_.machines_for_training += script_.machines;
  }
  std::vector<float> next(int64_t, const AdapterView&) override {
    if (answers_.tokens++ == answers_.stop_at) {
      script_.stop = true;
      throw Abandoned{};
    }
    std::vector<float> logits(50);
    const int64_t end = answers_.endless ? kToken : kStop;
    logits[static_cast<size_t>(given_ < answer_.size() ? answer_[given_] : end)] = 1;
    given_++;
    return logits;
  }

 private:
  Script& script_;
  Answers& answers_;
  Tokens answer_;
  size_t given_ = 0;
};

struct ChattyDevice : Device {
  ChattyDevice() {
    bundle.judges_behaviour(true);
    add_examples(6);
  }
  Report train_once() {
    Personal with_answers = personal();
    with_answers.make_answer_steps = [this](const PlanRecord&, MemoryGuard&) -> std::unique_ptr<AnswerSteps> {
      if (no_memory) throw Error(Kind::Budget, "a call", "too much", "less", "Raise the budget");
      return std::make_unique<AnsweringFake>(script, answers);
    };
    return Report::parse(train(with_answers, {}));
  }
  Answers answers;
  bool no_memory = false;
};

}  // namespace

TEST_CASE("accepted runs, however many, share one tolerance of the base's behaviour") {
  Device device;
  device.bundle.judges_behaviour(false);
  device.add_examples(6);
  device.script.harm = 0.25;
  int64_t accepted = 0, refused = 0;
  for (int64_t run = 0; run < 10; run++) {
    const Report report = train_on(device);
    CAPTURE(report.dump());
    CHECK(report["behaviour_loss_base"] == 1.0);
    const bool holds = report["behaviour_loss"].get<double>() <= 1.05;
    CHECK(report["accepted"] == holds);
    if (!holds) CHECK(report["refused_because"] == "behaviour_worse");
    ++(holds ? accepted : refused);
  }
  CHECK(accepted > 1);
  CHECK(refused > 1);
  CHECK(Report::parse([&] {
          Personal personal = device.personal();
          return evaluate_split(personal, "behaviour");
        }())["loss"]
            .get<double>() <= 1.05);
}

TrainRequest rehearsing() {
  TrainRequest request;
  request.settings = R"({"general_share": 0.3})";
  return request;
}

TEST_CASE("of what costs other answers too much, as much is kept as the tolerance allows") {
  Device device;
  device.bundle.judges_behaviour(false);
  device.add_examples(6);
  device.script.harm = 0;
  const float whole = [&] {  // what a run without harm learns
    Device harmless;
    harmless.add_examples(6);
    train_on(harmless, rehearsing());
    return *harmless.store->load_version(harmless.store->current_version()->id).find("x.lora_B")->data;
  }();
  device.script.harm = 0.2 / whole;  // a fifth worse
  const Report report = train_on(device, rehearsing());
  CAPTURE(report.dump());
  CHECK(report["accepted"] == true);
  CHECK(report["behaviour_loss"].get<double>() <= 1.05);
  CHECK(report["behaviour_loss"].get<double>() > 1.03);  // and not much less
  const double scale = report["adapter_scale"].get<double>();
  CHECK(scale < 0.25);
  const MappedTensors accepted = device.store->load_version(device.store->current_version()->id);
  CHECK(*accepted.find("x.lora_B")->data == doctest::Approx(whole * scale));
}

TEST_CASE("a run that rehearses nothing is refused, and not cut back") {
  Device device;
  device.bundle.judges_behaviour(false);
  device.add_examples(6);
  device.script.harm = 100;
  TrainRequest alone;
  alone.settings = R"({"general_share": 0})";
  const Report report = train_on(device, alone);
  CAPTURE(report.dump());
  CHECK(report["refused_because"] == "behaviour_worse");
  CHECK(report["adapter_scale"].is_null());
}

TEST_CASE("where too little is left to be of use, all of it is refused as it was") {
  Device device;
  device.bundle.judges_behaviour(false);
  device.add_examples(6);
  device.script.harm = 1e6;
  const Report report = train_on(device, rehearsing());
  CHECK(report["refused_because"] == "behaviour_worse");
  CHECK(report["adapter_scale"].is_null());
  CHECK(report["behaviour_loss"].get<double>() > 2);
}

TEST_CASE("a gate that is stopped at any look cuts back to the same adapter") {
  const auto learned = [](int64_t stop_at) {
    Device device;
    device.bundle.judges_behaviour(false);
    device.add_examples(6);
    device.script.harm = 5;
    device.script.stop_in_evaluation = stop_at;
    Report report = train_on(device, rehearsing());
    const bool was_stopped = report["accepted"].is_null();
    if (was_stopped) {
      device.script.stop = false;
      device.script.stop_in_evaluation = -1;
      report = train_on(device);
    }
    CAPTURE(report.dump());
    CHECK(report["accepted"] == true);
    const float b = *device.store->load_version(device.store->current_version()->id).find("x.lora_B")->data;
    return std::make_pair(was_stopped, b);
  };
  const auto [never_stopped, whole] = learned(-1);
  CHECK_FALSE(never_stopped);
  int64_t stops = 0;
  for (int64_t number = 0;; number++) {
    CAPTURE(number);
    const auto [stopped, b] = learned(number);
    CHECK(b == whole);
    if (!stopped) break;
    stops++;
  }
  CHECK(stops > 10);
}

TEST_CASE("ten runs that harm nothing are all accepted") {
  Device device;
  device.bundle.judges_behaviour(false);
  device.add_examples(6);
  device.script.harm = -0.01;
  for (int64_t run = 0; run < 10; run++) CHECK(train_on(device)["accepted"] == true);
}

TEST_CASE("the base is measured once, and without behaviour rows nobody asks for any") {
  Device device;
  device.add_examples(6);
  const Report without = train_on(device);
  CHECK(without["accepted"] == true);
  CHECK(without["behaviour_loss"].is_null());
  CHECK(without["behaviour_tokens"] == 0);
  device.bundle.judges_behaviour(false);
  const int64_t before = device.script.evaluated;
  train_on(device);
  const int64_t first = device.script.evaluated - before;
  CHECK(train_on(device)["behaviour_tokens"] == 2 * MemoryBundle::kBehaviourRows * 4);
  CHECK(device.script.evaluated - before - first == first - MemoryBundle::kBehaviourRows);  // in batches of two rows
}

TEST_CASE("a general set of the developer's own still refuses where behaviour holds") {
  Device device;
  device.bundle.judges_behaviour(false);
  device.add_examples(6);
  Machine machine(device.script, device.bundle.manifest().methods[0]);
  GateData gate;
  gate.user = user_rows(*device.store, device.store->rows(Split::train));
  gate.general = bundle_rows(device.bundle.tensors("data"), "data", 50);
  gate.behaviour = bundle_rows(device.bundle.tensors("behaviour"), "behaviour", 50);
  gate.judged_on = JudgedOn::validation;
  gate.rules = {2, 50};
  gate.general_tolerance = -0.5;  // a set that would have to get far better
  const float a = 0, zero = 0, better = 0.1f;
  machine.fill({{"x.lora_B", {&better, {1}}}});
  const AdapterView base = {{"x.lora_A", {&a, {1}}}, {"x.lora_B", {&zero, {1}}}};
  StoredLosses of_base(*device.store, 0), of_new(*device.store, -1, 1);
  device.script.harm = -10;
  Judgement judgement;
  judge(machine, gate, {base, of_base}, {base, of_base}, of_new, true, judgement);
  CHECK(*judgement.behaviour < *judgement.behaviour_base * 0.5);
  CHECK(judgement.refused_because == Refused::general_worse);
}

TEST_CASE("answers like the base's are accepted, and reported") {
  ChattyDevice device;
  const Report report = device.train_once();
  CAPTURE(report.dump());
  CHECK(report["accepted"] == true);
  CHECK(report["checked_answers"] == 4);
  CHECK(report["answer_tokens"] == 2.0);
  CHECK(report["base_answer_tokens"] == 2.0);
  CHECK(report["first_tokens_kept"] == 1.0);
  CHECK(report["answers_unchecked_because"].is_null());
  CHECK(device.answers.prompts == 4);
  CHECK(device.answers.machines_for_training == 0);  // never both in memory
  const MappedTensors accepted = device.store->load_version(device.store->current_version()->id);
  CHECK(*accepted.find("x.lora_B")->data == *device.answers.b);
  const Run run = device.store->run(report["run"]);
  CHECK_FALSE(device.store->best_step(run.id));
  CHECK(run.ended_because == "finished");
}

TEST_CASE("other words and other lengths refuse nothing") {
  ChattyDevice device;
  device.answers.of = [](size_t number) { return number % 2 ? Tokens{kToken} : Tokens{43, kToken, kToken, kToken}; };
  const Report report = device.train_once();
  CHECK(report["accepted"] == true);
  CHECK(report["answer_tokens"] == 2.5);
  CHECK(report["first_tokens_kept"] == 0.25);
}

TEST_CASE("an adapter whose answers are empty, never end or repeat an example is refused") {
  struct Case {
    const char* because;
    std::function<Tokens(size_t)> of;
    bool endless;
  };
  const auto first = [](size_t count, const Tokens& answer) {
    return [=](size_t number) { return number < count ? answer : Tokens{43, 44}; };
  };
  const Tokens learned = {3, 4};  // the second example's
  const Case cases[] = {
      {"answers_empty", first(2, {}), false},        {nullptr, first(1, {}), false},
      {"answers_copied", first(2, learned), false},  {nullptr, first(1, learned), false},
      {"answers_endless", first(4, {kToken}), true}, {nullptr, first(4, {3, 4, 5}), false},
      {nullptr, first(3, {kToken, kToken}), false},
  };
  for (const Case& one : cases) {
    ChattyDevice device;
    device.answers.of = one.of;
    device.answers.endless = one.endless;
    const Report report = device.train_once();
    CAPTURE(report.dump());
    CHECK(report["accepted"] == (one.because == nullptr));
    if (one.because) CHECK(report["refused_because"] == one.because);
    CHECK(report["checked_answers"] == 4);
    CHECK(device.answers.tokens <= 4 * 64);
    CHECK(device.store->current_version().has_value() == (one.because == nullptr));
    CHECK_FALSE(device.store->current_run());
  }
}

TEST_CASE("a gate that is stopped within an answer goes on with that one") {
  ChattyDevice device;
  device.answers.stop_at = 7;  // within the third answer: each takes three tokens, its end among them
  const Report stopped = device.train_once();
  CHECK(stopped["stopped_because"] == "stop_requested");
  CHECK(stopped["accepted"].is_null());
  CHECK(stopped["checked_answers"] == 0);
  CHECK(device.answers.prompts == 3);
  REQUIRE(device.store->current_run());
  const int64_t evaluated = device.script.evaluated, steps = device.script.steps;
  device.script.stop = false;
  const Report rest = device.train_once();
  CHECK(rest["accepted"] == true);
  CHECK(rest["checked_answers"] == 4);
  CHECK(device.answers.prompts == 5);  // the third again, and the fourth
  CHECK(device.script.evaluated == evaluated);
  CHECK(device.script.steps == steps);
  CHECK(rest["best_step"].is_null());  // too short a run to choose: it has a file, and no judgement
}

TEST_CASE("forgetting drops the answers of a run that saw the example") {
  ChattyDevice device;
  device.answers.stop_at = 7;
  device.train_once();
  const Run run = *device.store->current_run();
  device.store->keep_answer(run.id, 12, "a prompt", {43});
  REQUIRE(device.store->answer(run.id, 12, "a prompt"));
  device.store->forget("0");
  CHECK_FALSE(device.store->answer(run.id, 12, "a prompt"));
  device.store->keep_answer(run.id, 12, "a prompt", {43});  // as a trainer at work may
  CHECK_FALSE(device.store->answer(run.id, 12, "a prompt"));
}

TEST_CASE("where answers cannot be checked the loss alone judges, and the report says why") {
  ChattyDevice no_plan, no_room, no_memory, few;
  no_plan.bundle.manifest().generation.reset();
  no_room.bundle.manifest().generation->estimate.peak_bytes = uint64_t{1} << 40;
  no_room.script.limits.added_bytes = (int64_t{1} << 40) - 1;
  no_memory.no_memory = true;
  few.bundle.manifest().context_length = 60;  // too short for an answer as long as one may get
  const auto unchecked = [](ChattyDevice& device) {
    const Report report = device.train_once();
    CHECK(report["accepted"] == true);
    CHECK(report["checked_answers"] == 0);
    CHECK(report["answer_tokens"].is_null());
    CHECK(device.answers.prompts == 0);
    CHECK_FALSE(device.store->current_run());
    return report["answers_unchecked_because"];
  };
  CHECK(unchecked(no_plan) == "no_plan");
  CHECK(unchecked(no_room) == "no_room");
  CHECK(unchecked(no_memory) == "no_room");
  CHECK(unchecked(few) == "few_answers");
}

TEST_CASE("an adapter that is refused by its losses gives no answers") {
  ChattyDevice device;
  device.script.harm = 1e6;
  const Report report = device.train_once();
  CHECK(report["refused_because"] == "behaviour_worse");
  CHECK(device.answers.prompts == 0);
}

TEST_CASE("answers with the shortest words of the base's are asked for, where they end") {
  const auto row = [](std::vector<int32_t> answer) {
    TokenRow made;
    made.tokens = {kBehaviour, 1};
    made.mask = {0, 0};
    for (const int32_t token : answer) made.tokens.push_back(token), made.mask.push_back(1);
    return made;
  };
  std::vector<int32_t> long_answer(32, 5), longest = long_answer;
  long_answer.back() = longest.back() = kStop;
  longest.insert(longest.begin(), 5);
  std::vector<TokenRow> rows;
  for (const auto& answer : {longest, long_answer, {6, 7}, {kStop}, {6, 7, 8, kStop}, {6, kStop}}) rows.push_back(row(answer));
  const std::vector<AskedAnswer> asked = asked_answers(*given_rows(std::move(rows)), {kStop}, 100);
  REQUIRE(asked.size() == 3);
  CHECK(asked[0].base == Tokens{6});
  CHECK(asked[0].prompt == Tokens{kBehaviour, 1});
  CHECK(asked[1].base == Tokens{6, 7, 8});
  CHECK(asked[2].base.size() == 31);
}

TEST_CASE("of many behaviour rows a sample is looked at") {
  Device device;
  device.bundle.judges_behaviour(false);
  const BehaviourSample all = behaviour_sample(device.bundle);
  CHECK(all.rows->size() == 2 * MemoryBundle::kBehaviourRows);
  std::vector<RowPlace> places(3000, RowPlace{0, 0, 5});
  CHECK(predicted(judged_rows(places)) <= JUDGED_POSITIONS);
}
