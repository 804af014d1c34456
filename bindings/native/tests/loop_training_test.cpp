// SPDX-License-Identifier: Apache-2.0
// What `train` does around the steps: the gate, the report, what cannot fit.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "exec/fitting_plans.h"
#include "loop_fakes.h"
#include "train/evaluate.h"

using namespace fakes;

TEST_CASE("an adapter that is better is accepted and answers from then on") {
  Device device;
  const Report report = train_on(device);
  CHECK(report["accepted"] == true);
  CHECK(report["stopped_because"] == "finished");
  CHECK(report["steps"] == 12);
  CHECK(report["total_steps"] == 12);
  CHECK(report["losses"].size() == 12);
  CHECK(report["judged_on"].is_null());  // there is no example of the user
  CHECK(report["general_loss"].get<double>() < report["general_loss_before"].get<double>());
  CHECK(report["seconds_by_stage"]["forward"] == 12);
  CHECK(report["longest_instruction_seconds"] == 0.25);
  CHECK(report["runtime"] == "core");
  CHECK(report["memory"]["idle_bytes"] == 0);
  CHECK(report["peak_bytes"].get<int64_t>() >= report["step_peak_bytes"][0].get<int64_t>());
  CHECK_FALSE(device.store->current_run());
  REQUIRE(device.store->current_version());
  const Report second = train_on(device);  // from there
  CHECK(second["general_loss_before"] == report["general_loss"]);
  CHECK(second["run"] != report["run"]);
}

TEST_CASE("an adapter that is worse is refused; a run that has not ended goes on") {
  Device device;
  device.script.direction = -1;
  TrainRequest request;
  request.run_steps = 5;
  CHECK(train_on(device, request)["total_steps"] == 5);
  CHECK_FALSE(device.store->current_version());
  request.run_steps = 9;
  device.script.listener = [&](const Told& told) { device.script.stop = told.step == 4; };
  const int64_t evaluated = device.script.evaluated;
  const Report part = train_on(device, request);
  CHECK(part["accepted"].is_null());
  CHECK(part["general_loss_before"].is_null());
  CHECK(device.script.evaluated == evaluated);  // a slice that does not end its run judges nothing
  device.script.stop = false;
  device.script.listener = nullptr;
  const Report rest = train_on(device);
  CHECK(rest["steps"] == 5);
  CHECK(rest["total_steps"] == 9);
  CHECK(rest["accepted"] == false);
  CHECK(device.script.evaluated == evaluated + evaluated / 2);  // the answering adapter's losses were known
  CHECK_FALSE(device.store->current_run());
}

TEST_CASE("a gate that was stopped has decided nothing; the next call goes on with it") {
  for (const int64_t batches_before_stop : {1, 4}) {  // in the losses before, in those after
    CAPTURE(batches_before_stop);
    Device device;
    device.script.stop_in_evaluation = batches_before_stop;
    const Report stopped = train_on(device);
    CHECK(stopped["stopped_because"] == "stop_requested");
    CHECK(stopped["accepted"].is_null());
    CHECK(stopped["general_loss"].is_null());
    CHECK(stopped["total_steps"] == 12);
    CHECK(device.store->current_run());
    device.script.stop = false;
    device.script.stop_in_evaluation = -1;
    const Report rest = train_on(device);
    CHECK(rest["accepted"] == true);
    CHECK(rest["stopped_because"] == "finished");
    CHECK(device.script.steps == 12);
    Device whole;
    CHECK(train_on(whole)["general_loss"] == rest["general_loss"]);
    CHECK(device.script.evaluated == whole.script.evaluated);  // no batch twice
  }
}

TEST_CASE("a run whose examples or start are forgotten before its first step has ended, and that is no error") {
  for (const int32_t examples : {1, 3}) {  // one: nothing is left to train on
    CAPTURE(examples);
    Device device;
    device.add_examples(examples);
    REQUIRE(train_on(device)["accepted"] == true);  // the next run starts from an adapter that has seen them
    Personal personal = device.personal();
    const auto make_machine = personal.make_machine;
    personal.make_machine = [&](const Method& method, MemoryGuard& guard, const std::string& scratch_path) {
      device.store->forget("0");  // as another process may, between the start of the run and its first step
      return make_machine(method, guard, scratch_path);
    };
    const Report report = Report::parse(train(personal, {}));
    CHECK(report["stopped_because"] == "example_forgotten");
    CHECK(report["steps"] == 0);
    CHECK_FALSE(device.store->current_run());
    CHECK_FALSE(device.store->current_version());
  }
}

TEST_CASE("a run that diverged is over and changed nothing") {
  Device device;
  device.script.bad_steps = {3, 4, 5};
  const Report report = train_on(device);
  CHECK(report["stopped_because"] == "diverged");
  CHECK(report["losses"][4].is_null());
  CHECK(report["rejected_steps"] == 3);
  CHECK(report["accepted"] == false);
  CHECK_FALSE(device.store->current_run());
}

TEST_CASE("what cannot fit is refused before anything is run, against the whole process") {
  Device device;
  device.bundle.manifest().methods[0].plans[1].estimate.peak_bytes = 500'000'000;
  device.script.limits.added_bytes = 400'000'000;
  const Error error = error_of([&] { train_on(device); });
  CHECK(error.kind == Kind::Budget);
  CHECK(error.subject == "Training with 'first' (estimated peak 500.0 MB)");
  CHECK(device.script.steps == 0);
  device.script.limits.added_bytes = 500'000'000;  // what the process holds already is part of the estimate
  CHECK(train_on(device)["steps"] == 12);
}

TEST_CASE("a lower limit takes plans of a smaller budget, and the run goes on by them") {
  constexpr uint64_t megabyte = 1'000'000;  // more of them than a build with sanitizers holds before anything is run
  Device device;
  const auto plans = [](const char* at_4, const char* at_8, uint64_t peak) {
    std::vector<PlanRecord> made = {{4, at_4, {}}, {8, at_8, {}}};
    made[1].estimate.peak_bytes = peak;
    return made;
  };
  Manifest& manifest = device.bundle.manifest();
  manifest.memory_bytes = 6'000 * megabyte;
  manifest.methods[0].plans = plans("4", "8", 5'900 * megabyte);
  manifest.methods[0].smaller = {
      {5'000 * megabyte, plans("4-5000", "8-5000", 4'800 * megabyte)},
      {4'000 * megabyte, plans("4-4000", "8-4000", 3'900 * megabyte)},
  };
  std::vector<std::string> made_by;
  const auto trained = [&](int64_t limit, int64_t steps) {
    device.script.limits.added_bytes = limit;
    Personal personal = device.personal();
    personal.make_machine = [&](const Method& method, MemoryGuard&, const std::string&) {
      made_by.push_back(method.plans[1].file);
      return std::make_unique<Machine>(device.script, method);
    };
    device.script.listener = [&, steps, done = int64_t{0}](const Told& told) mutable {
      if (told.phase == Phase::step && ++done == steps) device.script.stop = true;
    };
    TrainRequest request;
    request.run_steps = 12;
    const Report report = Report::parse(train(personal, request));
    device.script.stop = false;
    return report["memory"];
  };
  CHECK(trained(Limits::kNone, 2)["planned_for_bytes"] == 6'000 * megabyte);
  CHECK(trained(5'900'000'000, 2)["planned_for_bytes"] == 6'000 * megabyte);
  const Report smaller = trained(5'899'999'999, 2);
  CHECK(smaller["planned_for_bytes"] == 5'000 * megabyte);
  CHECK(smaller["estimate_bytes"] == 4'800 * megabyte);
  CHECK(smaller["limit_bytes"] == 5'899'999'999);
  CHECK(trained(4'000'000'000, 2)["planned_for_bytes"] == 4'000 * megabyte);
  CHECK(made_by == std::vector<std::string>{"8", "8", "8-5000", "8-4000"});
  CHECK(device.store->current_run()->step == 8);  // one run
  CHECK(error_of([&] { trained(3'890'000'000, 2); }).subject == "Training with 'first' (estimated peak 3900.0 MB)");
  CHECK(trained(4'000'000'000, 99)["planned_for_bytes"] == 4'000 * megabyte);
  CHECK_FALSE(device.store->current_run());
}

TEST_CASE("a limit counts over what the process holds when a call begins, also where it is set at the same time") {
  Limits limits;
  CHECK(limits.memory_bytes() == Limits::kNone);
  limits.idle_bytes = 1000;
  CHECK(limits.memory_bytes() == Limits::kNone);
  limits.added_bytes = 500;
  CHECK(limits.memory_bytes() == 1500);
  limits.idle_bytes = 3000;  // another call, and nobody sets the limit again
  CHECK(limits.memory_bytes() == 3500);
  limits.added_bytes = 0;
  CHECK(limits.memory_bytes() == 3000);
}

TEST_CASE("what the process held before takes no room from plans") {
  const PlanRecord large{8, "large", {0, 0, 0, 0, 0, 0, 0, 0, 500, 0}}, small{8, "small", {0, 0, 0, 0, 0, 0, 0, 0, 300, 0}};
  const std::vector<SmallerPlans> smaller = {{400, {small}}};
  Limits limits;
  limits.idle_bytes = 1000;
  CHECK(fitting_plans({large}, smaller, limits) == nullptr);  // no limit
  limits.added_bytes = 500;
  CHECK(fitting_plans({large}, smaller, limits) == nullptr);
  limits.added_bytes = 499;
  CHECK(fitting_plans({large}, smaller, limits) == &smaller[0]);
  limits.added_bytes = 100;  // where none has room, the smallest is what is asked for
  CHECK(fitting_plans({large}, smaller, limits) == &smaller[0]);
  CHECK(fitting_plans({large}, {}, limits) == nullptr);
}

TEST_CASE("without a row to train on there is no run") {
  Device device;
  device.bundle.manifest().data_train.reset();
  CHECK(error_of([&] { train_on(device); }).kind == Kind::Data);
  CHECK_FALSE(device.store->current_run());
}

TEST_CASE("the base model's own answers alone are nothing to train on") {
  Device device;
  device.bundle.judges_behaviour(false);
  device.bundle.manifest().data_valid.reset();
  CHECK(error_of([&] { train_on(device); }).kind == Kind::Data);
  CHECK_FALSE(device.store->current_run());
}

TEST_CASE("two trainers do not share a state") {
  Device device;
  const auto lock = device.store->trainer_lock();
  auto other = device.open();
  Personal personal{device.bundle, *other, device.script.control, device.personal().make_machine, {}};
  CHECK(error_of([&] { train(personal, {}); }).kind == Kind::StateLocked);
}

class NothingKnown : public KnownLosses {
 public:
  std::optional<double> find(const Batch&) override { return std::nullopt; }
  void keep(const Batch&, double) override {}
};

TEST_CASE("the gate wants better on the user's rows and not much worse in general") {
  Device device;
  Machine machine(device.script, device.bundle.manifest().methods[0]);
  GateData gate;
  gate.general = no_rows();
  gate.user = bundle_rows(device.bundle.tensors("data"), "data", 50);
  gate.judged_on = JudgedOn::validation;
  gate.rules = {2, 50};
  gate.general_tolerance = 0.05;
  const auto judged = [&](float answering, float trained, bool changed) {
    const float a = 0;
    machine.fill({{"x.lora_B", {&trained, {1}}}});
    Judgement judgement;
    NothingKnown of_answering, of_new;
    const AdapterView answers = {{"x.lora_A", {&a, {1}}}, {"x.lora_B", {&answering, {1}}}};
    judge(machine, gate, {answers, of_answering}, {answers, of_answering}, of_new, changed, judgement);
    CHECK(*judgement.accepted == !judgement.refused_because);
    return judgement.refused_because;
  };
  CHECK(judged(0.0f, 0.1f, true) == std::nullopt);
  CHECK(judged(0.0f, 0.1f, false) == Refused::nothing_to_judge_by);
  CHECK(judged(0.1f, 0.1f, true) == Refused::no_better);
  CHECK(judged(0.2f, 0.1f, true) == Refused::no_better);
  CHECK(judged(0.0f, std::numeric_limits<float>::quiet_NaN(), true) == Refused::no_better);
  std::swap(gate.user, gate.general);  // general rows alone: better is asked of them
  CHECK(judged(0.0f, 0.1f, true) == std::nullopt);
  CHECK(judged(0.05f, 0.0f, true) == Refused::general_worse);
  gate.general = no_rows();
  CHECK(judged(0.0f, 0.1f, true) == Refused::nothing_to_judge_by);  // nothing is accepted
}

TEST_CASE("a gain that is more than luck has to be of use, too") {
  Device device;
  Machine machine(device.script, device.bundle.manifest().methods[0]);
  GateData gate;
  gate.general = no_rows();
  gate.user = bundle_rows(device.bundle.tensors("data"), "data", 50);
  gate.judged_on = JudgedOn::validation;
  gate.rules = {2, 50};
  const auto judged = [&](double share) {
    const float a = 0, before = 0, after = 0.1f;
    gate.useful_gain = share;
    machine.fill({{"x.lora_B", {&after, {1}}}});
    Judgement judgement;
    NothingKnown of_answering, of_new;
    const AdapterView answers = {{"x.lora_A", {&a, {1}}}, {"x.lora_B", {&before, {1}}}};
    judge(machine, gate, {answers, of_answering}, {answers, of_answering}, of_new, true, judgement);
    return judgement;
  };
  const Judgement any = judged(0);
  CHECK(*any.accepted);
  CHECK(*any.useful_gain == 0);
  const double share = (*any.before - *any.after) / *any.before;
  CHECK(*judged(share * 0.99).accepted);
  const Judgement small = judged(share * 1.01);
  CHECK(small.refused_because == Refused::too_small);
  CHECK(*small.useful_gain == *any.before * share * 1.01);
  std::swap(gate.user, gate.general);  // general rows alone
  gate.judged_on = std::nullopt;
  const Judgement general = judged(0);
  const double general_share = (*general.general_before - *general.general_after) / *general.general_before;
  CHECK(*judged(general_share * 0.99).accepted);
  CHECK(judged(general_share * 1.01).refused_because == Refused::too_small);
}
