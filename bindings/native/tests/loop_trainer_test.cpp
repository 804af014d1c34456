// SPDX-License-Identifier: Apache-2.0
// The trainer over a real state folder: what is committed when, and that a run in pieces ends as one that was not interrupted.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <set>

#include "loop_fakes.h"
#include "train/run_writes.h"

using namespace fakes;

namespace {

// One run of a device, continued by a new trainer and a new machine at each call, as after a kill.
class Session {
 public:
  explicit Session(Device& device, int64_t steps = 30) : device_(device), method_(device.bundle.manifest().methods[0]) {
    method_.training.steps = steps;
    const auto current = device.store->current_run();
    run_ = current ? *current : device.store->start_run("first", 11, "{\"training\": {}}", steps, std::nullopt);
  }
  Stopped train(int64_t steps) {
    run_ = device_.store->run(run_.id);
    Machine machine(device_.script, method_);
    MemoryGuard guard(device_.script.limits);
    device_.script.listener = [this](const Told& told) {
      if (on_step && told.phase == Phase::step) on_step(told.step);
    };
    BatchCursor cursor(*user_, *general_, {11, 2, 1, {4, 8}, 0.5, 50});
    BestStepSearch search(machine, *device_.store, run_, choosing, {2, 50});
    Trainer trainer(machine, *device_.store, run_, method_.training, cursor, search, guard, adapter_of(device_.bundle));
    restored = trainer.step();
    const auto keep = [&] { trained = trainer.trained(); };
    try {
      const Stopped reason = trainer.train(steps);
      keep();
      state.clear();
      for (const NamedTensor& tensor : machine.state()) state.push_back(*tensor.data);
      return reason;
    } catch (...) {
      keep();
      throw;
    }
  }
  int64_t committed() { return device_.store->run(run_.id).step; }
  int64_t id() const { return run_.id; }
  Training& training() { return method_.training; }

  std::function<void(int64_t)> on_step;
  Choosing choosing;
  std::vector<float> state;
  Trained trained;
  int64_t restored = 0;

 private:
  Device& device_;
  Method method_;
  Run run_;
  std::unique_ptr<RowSource> user_ = no_rows(), general_ = bundle_rows(device_.bundle.tensors("data"), "data", 50);
};

}  // namespace

TEST_CASE("a run in pieces ends with the bits of one that was not interrupted") {
  for (const bool replayable : {false, true}) {
    CAPTURE(replayable);
    Device whole, parts;
    whole.script.replayable = parts.script.replayable = replayable;
    whole.script.bad_steps = parts.script.bad_steps = {4, 13, 14, 28};
    Session once(whole);
    CHECK(once.train(100) == Stopped::finished);
    CHECK(once.trained.rejected == 4);
    std::vector<double> losses;
    Session session(parts);
    for (int64_t step = 0; step < 30; step += 7) {
      parts.store = parts.open();  // another process
      CHECK(session.train(7) == (step + 7 < 30 ? Stopped::steps_done : Stopped::finished));
      CHECK(session.restored == step);
      losses.insert(losses.end(), session.trained.losses.begin(), session.trained.losses.end());
    }
    CHECK(session.state == once.state);
    REQUIRE(losses.size() == once.trained.losses.size());
    for (size_t i = 0; i < losses.size(); i++)
      CHECK((losses[i] == once.trained.losses[i] || (losses[i] != losses[i] && once.trained.losses[i] != once.trained.losses[i])));
    CHECK((parts.script.replays > 0) == replayable);
  }
}

TEST_CASE("a rejected step changes nothing but the position") {
  Device device;
  Session session(device);
  session.train(3);
  const std::vector<float> before = session.state;
  device.script.bad_steps = {4};
  CHECK(session.train(1) == Stopped::steps_done);
  CHECK(session.state == before);
  CHECK(session.committed() == 4);
  CHECK(session.trained.rejected == 1);
}

TEST_CASE("three bad steps in a row end the run, also where the process died before it could say so") {
  Device device;
  device.script.bad_steps = {2, 5, 6, 7};
  Session session(device);
  CHECK(session.train(100) == Stopped::diverged);
  CHECK(session.committed() == 7);
  CHECK(session.train(100) == Stopped::diverged);
  CHECK(session.trained.steps == 0);
}

TEST_CASE("a stop commits the steps before it, between steps and within one") {
  Device device;
  Session session(device);
  session.on_step = [&](int64_t step) { device.script.stop = step == 5; };
  CHECK(session.train(100) == Stopped::stop_requested);
  CHECK(session.committed() == 5);
  device.script.stop = false;
  device.script.stop_within = 9;
  CHECK(session.train(100) == Stopped::stop_requested);
  CHECK(session.committed() == 8);
  CHECK(session.trained.steps == 3);
  CHECK(session.trained.step_peaks.size() == 4);  // that of the abandoned step too
}

TEST_CASE("where memory runs out the steps before are committed and the error is passed on") {
  for (const bool replayable : {false, true}) {
    Device device;
    device.script.replayable = replayable;
    device.script.full_at = 6;
    Session session(device);
    CHECK(error_of([&] { session.train(100); }).kind == Kind::Budget);
    CHECK(session.committed() == 5);
  }
}

TEST_CASE("a run that another process ended takes no more steps and no commit") {
  Device device;
  Session session(device);
  session.on_step = [&](int64_t step) {
    if (step == 4) device.store->end_run(session.id(), "example_forgotten");
  };
  CHECK(session.train(100) == Stopped::example_forgotten);
  CHECK(session.trained.steps == 4);
  CHECK(session.committed() == 0);
}

TEST_CASE("a resume replays no more of the journal than is between two slots") {
  Device device;
  device.script.replayable = true;
  Session session(device, 1000);
  session.train(450);
  CHECK(session.committed() == 450);
  session.train(1);
  CHECK(device.script.replays <= kSlotEvery);
  CHECK(session.restored == 450);
}

TEST_CASE("commits come no faster than the settings allow, by time and by what flash may be written") {
  Device device;
  Session session(device);
  session.training().commit_seconds = 1e-9;
  std::vector<int64_t> seen;
  session.on_step = [&](int64_t) { seen.push_back(session.committed()); };
  session.train(5);
  CHECK(seen == std::vector<int64_t>{0, 1, 2, 3, 4});
  seen.clear();
  session.training().write_mb_per_second = 1e-9;
  session.train(5);
  CHECK(seen == std::vector<int64_t>(5, 5));
  CHECK(session.committed() == 10);
}

TEST_CASE("slots of a run are as far apart as what it may write asks for") {
  // A slot of 30 MB, an adapter of 10 MB and ten judgements: 140 MB are written in any case.
  const RunFiles files{30'000'000, 10'000'000, 10};
  CHECK(steps_between_slots(files, 300, std::nullopt) == 1);
  CHECK(steps_between_slots(files, 300, 140 + 5 * 30) == 50);  // five in between make six parts
  CHECK(steps_between_slots(files, 300, 140 + 5 * 30 - 1) == 60);
  CHECK(steps_between_slots(files, 300, 140 + 29) == 300);  // none in between
  CHECK(steps_between_slots(files, 300, 1) == 300);
  CHECK(steps_between_slots(files, 7, 140 + 2 * 30) == 3);
  CHECK(steps_between_slots(files, 300, 1e9) == 1);
  CHECK(steps_between_slots({0, 0, 0}, 300, 1) == 1);
}

TEST_CASE("a run writes no more than it may, and what it wrote is counted over its calls") {
  Device device;
  Session session(device);  // of 30 steps
  session.training().commit_seconds = 1e-9;
  session.train(1);
  const int64_t slot = device.store->bytes_written(session.id());
  CHECK(slot > 0);
  session.training().write_mb_per_run = static_cast<double>(4 * slot + device.store->adapter_bytes()) / 1e6;  // the last one, and three
  std::vector<int64_t> seen;
  session.on_step = [&](int64_t) { seen.push_back(session.committed()); };
  CHECK(session.train(100) == Stopped::finished);
  CHECK(std::set<int64_t>(seen.begin(), seen.end()) == std::set<int64_t>{1, 9, 17, 25});  // every eighth step from the first on
  CHECK(device.store->bytes_written(session.id()) == 5 * slot);
}
