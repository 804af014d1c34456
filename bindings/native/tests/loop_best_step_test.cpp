// SPDX-License-Identifier: Apache-2.0
// The best step of a run: when it is judged, on which rows, that cuts do not change it, and that it is what the gate judges.
#include <algorithm>
#include <cmath>
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <random>

#include "format/hash.h"
#include "loop_fakes.h"
#include "train/best_step.h"

using namespace fakes;

namespace {

TrainRequest run_of(int64_t steps) {
  TrainRequest request;
  request.run_steps = steps;
  request.settings = "{\"schedule\": \"constant\"}";
  return request;
}

std::vector<float> answering(Device& device) {
  std::vector<float> numbers;
  const std::optional<MappedTensors> tensors = device.store->answering();
  for (const StateTensor& tensor : tensors.value().all()) numbers.push_back(*tensor.data);
  return numbers;
}

std::vector<int64_t> steps_of(const Report& judgements) {
  std::vector<int64_t> steps;
  for (const Report& one : judgements) steps.push_back(one["step"]);
  return steps;
}

// A method whose step costs so much at lengths 4 and 8.
Method costing(int64_t at_4, int64_t at_8, int64_t batch_size = 1) {
  Method method;
  method.training = {0.01, std::nullopt, {4, 8}, batch_size, 1, std::nullopt, Schedule::constant, 0, 3, 0, 0.05, 1000, 2, false};
  method.plans = {{4, "4.json", {}}, {8, "8.json", {}}};
  method.plans[0].estimate.work_flops = static_cast<uint64_t>(at_4);
  method.plans[1].estimate.work_flops = static_cast<uint64_t>(at_8);
  return method;
}

std::vector<RowPlace> places(size_t count, int32_t length) { return std::vector<RowPlace>(count, RowPlace{1, 0, length}); }

std::unique_ptr<RowSource> rows_of(size_t count, size_t length) {
  TokenRow row;
  row.tokens.assign(length, 1);
  row.mask.assign(length, 1);
  return given_rows(std::vector<TokenRow>(count, row));
}

}  // namespace

TEST_CASE("a run is judged at tenths of its steps, its best step is accepted, and what follows it ends the run") {
  Device device;
  device.add_examples(60);
  device.script.best_b = 0.42;  // 0.01 a step
  const Report report = train_on(device, run_of(100));
  CHECK(report["stopped_because"] == "no_better");
  CHECK(report["best_step"] == 40);
  CHECK(steps_of(report["judgements"]) == std::vector<int64_t>{10, 20, 30, 40, 50, 60, 70});
  CHECK(report["total_steps"] == 70);
  CHECK(report["accepted"] == true);
  CHECK(device.store->current_version()->step == 40);
  Device part;  // stopped after that step
  part.add_examples(60);
  part.script.listener = [&](const Told& told) { part.script.stop = told.step == 40; };
  const int64_t run = train_on(part, run_of(100))["run"];
  const int64_t one[] = {1, 1};
  const std::vector<StateTensor> kept{{"x.lora_A", one, 2}, {"x.lora_B", one, 2}, {"x.lora_A.m", one, 2}, {"x.lora_B.m", one, 2}};
  const Slot slot = std::move(part.store->latest_slot(run, kept).value());
  CHECK(answering(device) == std::vector<float>{*slot.tensors.find("x.lora_A")->data, *slot.tensors.find("x.lora_B")->data});
  CHECK_FALSE(device.store->current_run());
  CHECK_FALSE(device.store->best_step(report["run"]));  // its file has gone with the run
}

TEST_CASE("a run that gets better to its end takes all its steps") {
  Device device;
  device.add_examples(60);
  const Report report = train_on(device, run_of(95));
  CHECK(report["stopped_because"] == "finished");
  CHECK(steps_of(report["judgements"]) == std::vector<int64_t>{10, 19, 29, 38, 48, 57, 67, 76, 86, 95});
  CHECK(report["best_step"] == 95);
  CHECK(device.store->current_version()->step == 95);
}

TEST_CASE("wherever calls end, in a step, a judgement or the gate, the best step is the same, to the bit") {
  std::mt19937 random(7);
  for (const bool replayable : {false, true}) {
    Device whole;
    whole.script.replayable = replayable;
    whole.add_examples(60);
    whole.script.best_b = 0.42;
    const Report expected = train_on(whole, run_of(100));
    for (int cut_run = 0; cut_run < 10; cut_run++) {
      CAPTURE(cut_run);
      Device device;
      device.script.replayable = replayable;
      device.add_examples(60);
      device.script.best_b = 0.42;
      Report report;
      TrainRequest request = run_of(100);
      for (int calls = 0; report.is_null() || report["accepted"].is_null(); calls++) {
        REQUIRE(calls < 1000);
        device.script.stop = false;
        device.script.stop_within = device.script.stop_in_evaluation = -1;
        device.script.listener = nullptr;
        const int64_t done = report.is_null() ? 0 : report["total_steps"].get<int64_t>();
        const auto ahead = static_cast<int64_t>(random() % 20 + 1);
        const auto how = random() % 3;
        if (how == 0) device.script.stop_within = done + ahead;
        if (how == 1) device.script.stop_in_evaluation = device.script.evaluated + ahead;
        if (how == 2)
          device.script.listener = [&device, done, ahead](const Told& told) {
            device.script.stop = told.phase == Phase::step && told.step >= done + ahead;
          };
        report = train_on(device, request);
        request = {};
      }
      CHECK(report["judgements"] == expected["judgements"]);
      CHECK(report["best_step"] == expected["best_step"]);
      CHECK(report["total_steps"] == expected["total_steps"]);
      CHECK(report["validation_loss"] == expected["validation_loss"]);
      CHECK(answering(device) == answering(whole));
    }
  }
}

TEST_CASE("an example that is forgotten takes the best step and what was judged with it") {
  Device device;
  device.add_examples(60);
  device.script.listener = [&](const Told& told) { device.script.stop = told.step == 25; };
  const int64_t run = train_on(device, run_of(100))["run"];
  CHECK(device.store->best_step(run)->step == 20);
  CHECK(device.store->judged_steps(run).size() == 2);
  CHECK(device.store->forget("3").run_stopped);
  CHECK_FALSE(device.store->best_step(run));
  CHECK(device.store->judged_steps(run).empty());
  CHECK_FALSE(device.store->keep_judged_step(run, {30, 1.0}, nullptr));
}

TEST_CASE("held-out examples are dealt in two by the hash of their ids; of few all judge") {
  Device device;
  device.add_examples(200);
  const int64_t run = device.store->start_run("first", 1, "{\"training\": {}}", 10, std::nullopt).id;
  const HeldOut dealt = device.store->held_out(run);
  std::vector<std::pair<std::string, int64_t>> by_hash;  // of all that are held out, with their keys: numbers from 1
  for (const ExampleInfo& info : device.store->examples())
    if (info.split == Split::validation) by_hash.emplace_back(sha256_hex(bytes_of(info.id)), std::stoll(info.id) + 1);
  std::sort(by_hash.begin(), by_hash.end());
  REQUIRE(by_hash.size() >= 20);
  CHECK(dealt.choosing.size() == by_hash.size() / 2);
  CHECK(dealt.judging.size() == (by_hash.size() + 1) / 2);
  for (size_t i = 0; i < dealt.choosing.size(); i++) CHECK(dealt.choosing[i].example == by_hash[2 * i + 1].second);
  for (size_t i = 0; i < by_hash.size(); i += 2)
    CHECK(std::any_of(dealt.judging.begin(), dealt.judging.end(), [&](const RowPlace& row) { return row.example == by_hash[i].second; }));
  Device few;
  few.add_examples(25);
  const HeldOut all = few.store->held_out(few.store->start_run("first", 1, "{}", 10, std::nullopt).id);
  CHECK(all.choosing.empty());
  CHECK(static_cast<int64_t>(all.judging.size()) == few.store->example_count(Split::validation));
  CHECK(all.judging.size() < 4);
}

TEST_CASE("judging takes at most a twentieth of the work, and no run is judged more often than at its tenths") {
  const auto none = no_rows();
  const auto user = rows_of(30, 5);
  for (const int64_t steps : {1, 5, 20, 50, 100, 300, 1000, 5000})
    for (const size_t held_out : {1u, 2u, 5u, 40u, 500u})
      for (const int64_t batch_size : {1, 4}) {
        CAPTURE(steps);
        CAPTURE(held_out);
        CAPTURE(batch_size);
        const Choosing choosing = choosing_of(costing(1000, 2000, batch_size), steps, places(held_out, 5), *user, *none);
        const auto batches = (static_cast<int64_t>(choosing.rows.size()) + batch_size - 1) / batch_size;
        CHECK(batches * 500 * static_cast<int64_t>(choosing.steps.size()) <= steps * 1000 / 20);
        CHECK(choosing.steps.size() <= 10);
        CHECK(choosing.steps.size() != 1);
        if (steps < 20) CHECK(choosing.steps.empty());
        if (steps >= 300) CHECK(choosing.steps.size() >= 5);
        if (!choosing.steps.empty()) CHECK(choosing.steps.back() == steps);
      }
  // Rows that cost twice a step's leave half as many judgements.
  CHECK(choosing_of(costing(1000, 2000), 100, places(1, 5), *user, *none).steps.size() == 10);
  CHECK(choosing_of(costing(1000, 2000), 100, places(1, 9), *user, *none).steps.size() == 5);
  CHECK(choosing_of(costing(1000, 2000), 100, places(1, 90), *user, *none).steps.size() == 5);  // too long: refused where it is read
  CHECK(choosing_of(costing(1000, 2000), 100, {}, *user, *none).steps.empty());
  CHECK(choosing_of(costing(1000, 2000), 100, places(9, 5), *none, *user).steps.empty());
}
