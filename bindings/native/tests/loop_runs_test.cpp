// SPDX-License-Identifier: Apache-2.0
// Which run a call of `train` starts or goes on with, how long it is, and what is refused.
#include <doctest/doctest.h>
#include <limits>
#include <nlohmann/json.hpp>

#include "loop_fakes.h"
#include "train/run_settings.h"

using namespace fakes;

namespace {

TrainRequest with_settings(const char* settings) {
  TrainRequest request;
  request.settings = settings;
  return request;
}

TrainRequest by_method(const char* method) {
  TrainRequest request;
  request.method = method;
  return request;
}

}  // namespace

TEST_CASE("an unfinished run keeps its settings; another method replaces it") {
  Device device;
  TrainRequest request;
  request.run_steps = 9;
  request.settings = "{\"learning_rate\": 0.5}";
  device.script.listener = [&](const Told& told) { device.script.stop = told.step == 2; };
  train_on(device, request);
  device.script.stop = false;
  device.script.listener = nullptr;
  const int64_t first = device.store->current_run()->id;
  const auto refused = [&](const TrainRequest& other) { return error_of([&] { train_on(device, other); }); };
  CHECK(refused(with_settings("{\"learning_rate\": 0.1}")).got == "other settings (learning_rate) for an unfinished run");
  TrainRequest other;
  other.seed = 77;
  CHECK(refused(other).got == "other settings (seed) for an unfinished run");
  other.run_steps = 10;
  CHECK(refused(other).got == "other settings (run_steps, seed) for an unfinished run");
  CHECK(device.store->current_run()->id == first);
  CHECK(refused(by_method("third")).kind == Kind::Config);
  CHECK(device.store->current_run()->id == first);  // what is refused ends nothing
  request.most_steps = 1;
  CHECK(train_on(device, request)["total_steps"] == 3);  // the same again is no other setting
  TrainRequest replacing = by_method("second");
  replacing.run_steps = 1;
  CHECK(train_on(device, replacing)["method"] == "second");
  CHECK(device.store->run(first).ended_because == "replaced");
}

TEST_CASE("a run of eight steps is one run, by however many calls") {
  Device whole;
  TrainRequest request;
  request.run_steps = 8;
  const Report expected = train_on(whole, request);
  Device device;
  request.most_steps = 2;
  Report losses = Report::array(), report;
  for (const char* stopped_because : {"steps_done", "steps_done", "steps_done", "finished"}) {
    CHECK_FALSE(device.store->current_version());
    report = train_on(device, request);
    CHECK(report["run"] == expected["run"]);
    CHECK(report["steps"] == 2);
    CHECK(report["stopped_because"] == stopped_because);
    CHECK(report["accepted"].is_null() == (report["stopped_because"] == "steps_done"));
    for (const Report& loss : report["losses"]) losses.push_back(loss);
  }
  CHECK(losses == expected["losses"]);
  CHECK(report["general_loss"] == expected["general_loss"]);
  CHECK(device.store->accepted().size() == 1);
}

TEST_CASE("the steps of a call do not decide the length of a run") {
  Device device;
  TrainRequest request;
  request.most_steps = 5;
  CHECK(train_on(device, request)["stopped_because"] == "steps_done");
  CHECK(device.store->current_run()->steps == 12);  // the bundle's
}

TEST_CASE("numbers of steps out of range, and one that does not say what it counts, are refused") {
  Device device;
  for (const int64_t wrong : {int64_t{-1}, int64_t{10'000'001}, std::numeric_limits<int64_t>::max()}) {
    TrainRequest run, call;
    run.run_steps = call.most_steps = wrong;
    CHECK(error_of([&] { train_on(device, run); }).subject == "train.run_steps");
    CHECK(error_of([&] { train_on(device, call); }).subject == "train.most_steps");
  }
  const Error refused = error_of([&] { train_on(device, with_settings("{\"steps\": 5}")); });
  CHECK(refused.kind == Kind::Config);
  CHECK(refused.subject == "train.steps");
  CHECK(refused.got == "5");
  CHECK(refused.expected == "run_steps, the length of a new run, or most_steps, the most steps of this call");
  CHECK_FALSE(device.store->current_run());
}

TEST_CASE("a bundle with other options does not go on with a run; one that kept none goes on") {
  Device device;
  device.script.listener = [&](const Told& told) { device.script.stop = told.step == 2; };
  train_on(device);
  device.script.stop = false;
  device.script.listener = nullptr;
  const Run run = *device.store->current_run();
  Manifest manifest = device.bundle.manifest();
  CHECK(choose_run(manifest, *device.store, {}).goes_on);
  manifest.methods[0].options = "{\"epsilon\":0.1}";
  const Error refused = error_of([&] { choose_run(manifest, *device.store, {}); });
  CHECK(refused.kind == Kind::Config);
  CHECK(refused.expected == "{\"epsilon\":0.01}, which the unfinished run was started with");
  TrainRequest replacing;
  replacing.new_run = true;
  CHECK_FALSE(choose_run(manifest, *device.store, replacing).goes_on);
  device.store->end_run(run.id, "abandoned");
  device.store->start_run("first", 1, "{\"training\":" + training_json(manifest.methods[0].training) + "}", 12, std::nullopt);
  CHECK(choose_run(manifest, *device.store, {}).goes_on);
}

TEST_CASE("settings that the plans were built for are not changed") {
  Device device;
  const auto refused = [&](const char* settings) { return error_of([&] { train_on(device, with_settings(settings)); }); };
  CHECK(refused("{\"batch_size\": 3}").expected == "2, which the bundle was built for");
  CHECK(refused("{\"sequence_lengths\": [4]}").got == "[4]");
  CHECK(refused("{\"clip_norm\": 1.5}").expected == "null, which the bundle was built for");
  CHECK(refused("{\"accumulation\": 2}").subject == "train.accumulation");
  CHECK(refused("{\"warmup_steps\": -1}").kind == Kind::Config);
  CHECK(refused("[]").kind == Kind::Config);
  CHECK_FALSE(device.store->current_run());
}
