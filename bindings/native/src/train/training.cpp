// SPDX-License-Identifier: Apache-2.0
#include "train/training.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "train/judged.h"
#include "train/report.h"
#include "state/stored_text.h"

namespace bespoke {

namespace {

using Json = nlohmann::json;

// ---- which run -----------------------------------------------------------------------------------------------------------

Json overrides_of(const TrainRequest& request) {
  if (request.settings.empty()) return Json::object();
  Json overrides = Json::parse(request.settings, nullptr, false);
  if (!overrides.is_object())
    throw Error(Kind::Config, "train", "settings that are no JSON object, which has no word for NaN and infinity", "an object of Training fields",
                "Change the settings");
  return overrides;
}

Training settings_of(const Run& run) {
  const std::string subject = "settings of run " + std::to_string(run.id);
  const Json settings = Json::parse(run.settings, nullptr, false);
  if (!settings.is_object() || !settings.contains("training"))
    throw Error(Kind::State, subject, "no training settings", "those it was started with", "The state is damaged; abandon the run");
  return training_from_json(settings["training"].dump(), subject);
}

std::string shown(const std::vector<int64_t>& lengths) {  // as Python shows a tuple
  std::string text;
  for (int64_t length : lengths) text += (text.empty() ? "" : ", ") + std::to_string(length);
  return "(" + text + (lengths.size() == 1 ? ",)" : ")");
}

// Batch size, lengths and accumulation or not are in the plans.
void refuse_what_is_compiled(const Training& built, const Training& asked, const std::string& subject = "train",
                             Kind kind = Kind::Config, const char* next_step = "Build a bundle with the other value") {
  const auto hold = [&](const char* name, const std::string& was, const std::string& now) {
    if (was != now) throw Error(kind, subject + "." + name, now, was + ", which the bundle was built for", next_step);
  };
  const auto norm = [](const Training& training) { return training.clip_norm ? repr_of(*training.clip_norm) : "None"; };
  hold("batch_size", std::to_string(built.batch_size), std::to_string(asked.batch_size));
  hold("sequence_lengths", shown(built.sequence_lengths), shown(asked.sequence_lengths));
  hold("clip_norm", norm(built), norm(asked));
  hold("packing", built.packing ? "True" : "False", asked.packing ? "True" : "False");
  if (built.accumulates() != asked.accumulates())
    throw Error(kind, subject + ".accumulation", std::to_string(asked.accumulation),
                std::to_string(built.accumulation) + ", or another number above 1 if that is", next_step);
}

std::unique_ptr<RowSource> general_rows(Bundle& bundle, const std::optional<std::string>& name) {
  return name ? bundle_rows(bundle.tensors(*name), *name, bundle.manifest().vocab_size) : no_rows();
}

void refuse_other_settings(const Run& run, const Json& overrides, std::optional<int64_t> seed) {
  const Training kept = settings_of(run);
  const Training asked = overrides.empty() ? kept : override_training(kept, overrides.dump());
  if (training_json(asked) == training_json(kept) && (!seed || *seed == run.seed)) return;
  std::string names;
  for (const auto& entry : overrides.items()) names += (names.empty() ? "" : ", ") + entry.key();
  if (seed) names += names.empty() ? "seed" : ", seed";
  throw Error(Kind::Config, "run " + std::to_string(run.id), "other settings (" + names + ") for an unfinished run",
              "the settings it was started with", "Continue it without them, or call abandon_run() and train again");
}

// The unfinished run, or a new one.
Run choose_run(Personal& personal, const TrainRequest& request) {
  StateStore& store = personal.store;
  Json overrides = overrides_of(request);
  const std::optional<Run> current = store.current_run();
  if (current && (request.method.empty() || request.method == current->method)) {
    refuse_other_settings(*current, overrides, request.seed);
    return *current;
  }
  const Method& method = personal.bundle.manifest().method(request.method);
  if (request.steps != 0) overrides["steps"] = request.steps;
  const Training training = override_training(method.training, overrides.dump());
  refuse_what_is_compiled(method.training, training);
  // A run keeps the examples that it starts with.
  if (store.example_count(Split::train) == 0 && general_rows(personal.bundle, personal.bundle.manifest().data_train)->size() == 0)
    throw Error(Kind::Data, "training data", "no example of the user to train on, and no general text in the bundle", "at least one",
                "Add an example");
  if (current) store.end_run(current->id, "replaced");  // only now: what is refused must not end it
  const std::optional<Version> version = store.current_version();
  return store.start_run(method.name, request.seed.value_or(training.seed),
                         "{\"training\":" + training_json(training) + "}", training.steps,
                         version ? std::optional(version->id) : std::nullopt);
}

// ---- adapters --------------------------------------------------------------------------------------------------------------

struct Adapter {  // in place: mapped from its file
  MappedTensors mapped;
  TensorSource tensors;
};

Adapter adapter_from(Personal& personal, std::optional<MappedTensors> mapped) {
  Adapter adapter;
  if (!mapped) {
    adapter.tensors = adapter_of(personal.bundle);
    return adapter;
  }
  adapter.mapped = std::move(*mapped);
  adapter.tensors = source_of(adapter.mapped);
  return adapter;
}

// The newest accepted one, else the bundle's initial one, which changes nothing.
Adapter answering(Personal& personal) { return adapter_from(personal, personal.store.answering()); }

Adapter start_of(Personal& personal, const Run& run) {
  return adapter_from(personal, run.started_from ? std::optional(personal.store.load_version(*run.started_from)) : std::nullopt);
}

// ---- the gate --------------------------------------------------------------------------------------------------------------

GateData gate_of(Personal& personal, const Run& run, const Method& method) {
  const Manifest& manifest = personal.bundle.manifest();
  std::vector<RowPlace> places = personal.store.rows(run.id, Split::validation);
  GateData gate;
  gate.judged_on = JudgedOn::validation;
  if (places.empty()) {
    places = personal.store.rows(run.id, Split::train);
    gate.judged_on = places.empty() ? std::nullopt : std::optional(JudgedOn::train);
  }
  const std::vector<RowPlace> judged = judged_rows(places);
  gate.tokens = predicted(judged);
  gate.of_tokens = predicted(places);
  gate.user = user_rows(personal.store, judged);
  gate.general = general_rows(personal.bundle, manifest.data_valid);
  gate.general_tolerance = method.training.general_tolerance;
  gate.rules = {method.training.batch_size, manifest.vocab_size};
  return gate;
}

void decide(Personal& personal, Steps& machine, const Run& run, Judgement& judgement, Stopped reason) {
  if (judgement.accepted) {
    const std::vector<NamedTensor> adapter = machine.adapter();
    const std::string metrics = judgement_json(judgement.after ? &*judgement.after : nullptr,
                                               judgement.before ? &*judgement.before : nullptr);
    judgement.accepted = personal.store.accept(run.id, state_tensors(adapter), metrics).has_value();
  }
  if (reason == Stopped::finished || reason == Stopped::diverged) personal.store.end_run(run.id, name_of(reason));
}

void refuse_what_cannot_fit(const Method& method, int64_t estimate, MemoryGuard& guard) {
  // The estimate is of the whole process, which holds some of it already.
  guard.ask(std::max<int64_t>(0, estimate - guard.observe()),
            "Training with '" + method.name + "' (estimated peak " + megabytes(estimate) + ")");
}

std::map<std::string, double> less(std::map<std::string, double> after, const std::map<std::string, double>& before) {
  for (const auto& [name, seconds] : before) after[name] -= seconds;
  return after;
}

}  // namespace

TensorSource adapter_of(Bundle& bundle) {
  const std::string& name = bundle.manifest().adapter;
  TensorSource source;
  for (const auto& [piece, tensor] : bundle.tensors(name)) {
    if (tensor.dtype != DType::float32 || reinterpret_cast<uintptr_t>(tensor.data) % alignof(float))
      throw Error(Kind::Bundle, name + ", tensor '" + piece + "'", "another type, or one that is not aligned", "aligned float32",
                  "Build the bundle again, or copy it again");
    source.emplace(piece, FloatTensor{reinterpret_cast<const float*>(tensor.data), tensor.shape});
  }
  return source;
}

std::string train(Personal& personal, const TrainRequest& request) {
  const auto began = std::chrono::steady_clock::now();
  const Storage storage = storage_bytes();
  if (request.steps < 0)
    throw Error(Kind::Config, "train.steps", std::to_string(request.steps), "1 or more, or 0 for all", "Change steps");
  if (request.seed && *request.seed < 0)
    throw Error(Kind::Config, "train.seed", std::to_string(*request.seed), "0 or more", "Change seed");
  if (request.steps > 0) override_training(personal.bundle.manifest().method("").training, Json{{"steps", request.steps}}.dump());
  personal.control.tell(Phase::open);
  const auto lock = personal.store.trainer_lock();
  const Run run = choose_run(personal, request);
  Method method = personal.bundle.manifest().method(run.method);
  const Training built = method.training;
  method.training = settings_of(run);
  const std::string stored = "settings of run " + std::to_string(run.id);
  refuse_what_is_compiled(built, method.training, stored, Kind::State, "The state is damaged; abandon the run");
  if (run.seed < 0)
    throw Error(Kind::State, stored + ".seed", std::to_string(run.seed), "0 or more", "The state is damaged; abandon the run");
  const Training& training = method.training;

  TrainReport report;
  report.method = run.method;
  report.run = run.id;
  report.total_steps = run.step;
  for (const PlanRecord& plan : method.plans)
    report.memory.estimate_bytes = std::max(report.memory.estimate_bytes, static_cast<int64_t>(plan.estimate.peak_bytes));

  MemoryGuard guard(personal.control.limits());
  refuse_what_cannot_fit(method, report.memory.estimate_bytes, guard);
  const std::unique_ptr<Steps> machine = personal.make_machine(method, guard, personal.store.scratch_path());
  const GateData gate = gate_of(personal, run, method);
  const auto user = user_rows(personal.store, personal.store.rows(run.id, Split::train));
  const auto general = general_rows(personal.bundle, personal.bundle.manifest().data_train);
  std::unique_ptr<Trainer> trainer;
  BatchCursor cursor(*user, *general,
                     {static_cast<uint64_t>(run.seed), training.batch_size, training.accumulation, machine->sequence_lengths(),
                      training.general_share, personal.bundle.manifest().vocab_size});
  try {
    personal.control.tell(Phase::judge, run.step, run.steps);
    report.judgement = judge_before(*machine, gate, answering(personal).tensors);
    const auto before = machine->seconds_by_stage();
    trainer = std::make_unique<Trainer>(*machine, personal.store, run, training, cursor, guard,
                                        start_of(personal, run).tensors);
    report.stopped_because = trainer->train(request.steps != 0 ? request.steps : run.steps);
    report.total_steps = trainer->step();
    report.seconds_by_stage = less(machine->seconds_by_stage(), before);
    if (report.stopped_because == Stopped::deadline) throw Abandoned{};  // the gate takes time, too
    const bool changed =
        trainer->step() > 0 && report.stopped_because != Stopped::diverged && report.stopped_because != Stopped::example_forgotten;
    personal.control.tell(Phase::judge, trainer->step(), run.steps);
    judge_after(*machine, gate, report.judgement, changed);
    decide(personal, *machine, run, report.judgement, report.stopped_because);
  } catch (const Abandoned&) {  // in the gate: what was trained is committed, the next call judges it
    report.stopped_because = personal.control.why();
  } catch (const RowForgotten&) {  // in the gate: the run has ended
    report.stopped_because = Stopped::example_forgotten;
  }

  report.longest_call_seconds = machine->longest_call_seconds();
  guard.observe();
  if (const int64_t limit = personal.control.limits().memory_bytes; limit >= 0) report.memory.limit_bytes = limit;
  report.memory.peak_bytes = guard.peak();
  report.memory.mapped_dirty_bytes = dirty_mapped_bytes();
  report.memory.file_bytes = guard.columns().read().file;
  const Storage now = storage_bytes();
  report.storage = {now.read - storage.read, now.written - storage.written};
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return report_json(report, trainer ? trainer->trained() : Trained());
}

std::string evaluate_examples(Personal& personal, const std::string& split) {
  if (split != "train" && split != "validation")
    throw Error(Kind::Config, "split", "'" + split + "'", "'train' or 'validation'", "Name one of these two");
  const Split which = split == "train" ? Split::train : Split::validation;
  const Method& method = personal.bundle.manifest().method("");
  MemoryGuard guard(personal.control.limits());
  const std::unique_ptr<Steps> machine = personal.make_machine(method, guard, "");
  const auto rows = user_rows(personal.store, personal.store.rows(which));
  const Adapter adapter = answering(personal);
  try {
    const auto found = evaluate(*machine, *rows, &adapter.tensors, {method.training.batch_size, personal.bundle.manifest().vocab_size},
                                personal.store.example_count(which));
    if (found) return report_json(*found);
  } catch (const RowForgotten&) {
    throw Error(Kind::Data, "examples of split '" + split + "'", "one that was forgotten meanwhile", "examples that stay",
                "Evaluate again");
  }
  throw Error(Kind::Data, "examples of split '" + split + "'", "none", "at least one",
              "Add examples; from the fifth on, one in ten is kept for validation");
}

}  // namespace bespoke
