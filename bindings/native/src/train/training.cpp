// SPDX-License-Identifier: Apache-2.0
#include "train/training.h"

#include "exec/fitting_plans.h"
#include "train/behaviour.h"
#include "train/gate.h"
#include "train/reported_call.h"
#include "train/run_length.h"
#include "train/stored_losses.h"
#include "train/tensor_views.h"

namespace bespoke {

namespace {

// Whether the bundle's own rows teach what the base model does not know. Its own answers alone do not, and no other rows judge then.
bool teaches(Bundle& bundle) {
  const Manifest& manifest = bundle.manifest();
  if (manifest.data_behaviour && !manifest.data_valid) return false;
  return bundle_rows(bundle, manifest.data_train)->size() > 0;
}

// The unfinished run, or a new one, whose settings then have its length.
Run chosen_run(Personal& personal, const TrainRequest& request, ChosenRun& chosen) {
  if (chosen.goes_on) return *chosen.unfinished;
  StateStore& store = personal.store;
  // A run keeps the examples that it starts with.
  if (store.example_count(Split::train) == 0 && !teaches(personal.bundle))
    throw Error(Kind::Data, "training data", "no example of the user to train on, and no general text in the bundle", "at least one",
                "Add an example: " + to_call(Verb::add, "example"));
  if (chosen.unfinished) store.end_run(chosen.unfinished->id, "replaced");  // only now: what is refused must not end it
  Method& method = chosen.method;
  std::optional<int64_t>& steps = method.training.steps;
  if (!steps) {
    const size_t general = bundle_rows(personal.bundle, personal.bundle.manifest().data_train)->size();
    steps = run_length(method.training, static_cast<int64_t>(store.rows(Split::train).size()), static_cast<int64_t>(general));
  }
  return store.start_run(method.name, request.seed.value_or(method.training.seed), settings_json(method), *steps);
}

// ---- adapters --------------------------------------------------------------------------------------------------------------

Adapter adapter_from(Bundle& bundle, std::optional<MappedTensors> mapped) {
  Adapter adapter;
  if (!mapped) {
    adapter.tensors = adapter_of(bundle);
    return adapter;
  }
  adapter.mapped = std::move(*mapped);
  adapter.tensors = source_of(adapter.mapped);
  return adapter;
}

// Throws RowForgotten where the run has ended, and what it started from has gone with it.
Adapter start_of(Personal& personal, const Run& run) {
  if (!run.started_from) return adapter_from(personal.bundle, std::nullopt);
  std::optional<MappedTensors> start = personal.store.find_version(*run.started_from);
  if (!start && personal.store.ended_because(run.id)) throw RowForgotten{};
  return adapter_from(personal.bundle, start ? std::move(start) : personal.store.load_version(*run.started_from));
}

bool ends_run(Stopped reason) { return reason == Stopped::finished || reason == Stopped::no_better || reason == Stopped::diverged; }

// The steps of a run and, where they end it, the gate. An example of it may be forgotten at any moment.
Trained train_run(Personal& personal, const TrainRequest& request, const Run& run, const Method& method, std::unique_ptr<Steps>& owned,
                  MemoryGuard& guard, TrainReport& report) {
  Steps& machine = *owned;
  const Training& training = method.training;
  const int64_t vocab_size = personal.bundle.manifest().vocab_size;
  const auto user = user_rows(personal.store, personal.store.rows(run.id, Split::train));
  const auto general = bundle_rows(personal.bundle, personal.bundle.manifest().data_train);
  if (personal.store.ended_because(run.id)) {  // so these may not be all rows that it began with
    report.stopped_because = Stopped::example_forgotten;
    return {};
  }
  // What is judged when follows from the run, by whichever plans it goes on: from the work of those for the bundle's budget.
  BestStepSearch search(machine, personal.store, run,
                        choosing_of(method, run.steps, personal.store.held_out(run.id).choosing, *user, *general),
                        {training.batch_size, vocab_size});
  BatchCursor cursor(*user, *general,
                     {static_cast<uint64_t>(run.seed), training.batch_size, training.accumulation, machine.sequence_lengths(),
                      training.general_share, vocab_size, machine.learns_pairs()});
  std::unique_ptr<Trainer> trainer;
  try {
    trainer = std::make_unique<Trainer>(machine, personal.store, run, training, cursor, search, guard, start_of(personal, run).tensors);
    report.stopped_because = trainer->train(request.most_steps != 0 ? request.most_steps : run.steps);
    report.total_steps = trainer->step();
    report.seconds_by_stage = machine.seconds_by_stage();
    report.judgements = search.judged();
    report.best_step = search.best();
    report.longest_call_seconds = machine.longest_call_seconds();
    if (ends_run(report.stopped_because)) judge_run(personal, owned, run, method, guard, report);
  } catch (const Abandoned&) {  // in the gate: what was trained is committed, the next call judges it
    report.stopped_because = personal.control.why();
  } catch (const RowForgotten&) {  // at the start or in the gate: the run has ended
    report.stopped_because = Stopped::example_forgotten;
  }
  return trainer ? trainer->trained() : Trained();
}

// What the adapter that answers is worth on some rows, which are asked for once the machine is there; `base`: and the base model.
template <class Rows>
std::string judged(Personal& personal, const Wording& subject, const char* next_step, bool base, Rows rows_of, int64_t examples) {
  const Method method = by_fitting_plans(personal.bundle.manifest().method(""), personal.control.limits()).method;
  MemoryGuard guard(personal.control.limits());
  const std::unique_ptr<Steps> machine = personal.make_machine(method, guard, "");
  const std::unique_ptr<RowSource> rows = rows_of();
  const Adapter adapter = answering_adapter(personal.bundle, personal.store);
  const EvaluationRules rules{method.training.batch_size, personal.bundle.manifest().vocab_size};
  auto measured = evaluate(*machine, *rows, &adapter.tensors, rules, examples);
  if (!measured) throw Error(Kind::Data, subject, "none", "at least one", next_step);
  const TensorSource of_bundle = adapter_of(personal.bundle);
  StoredLosses known(personal.store, 0);
  if (base) measured->base_loss = loss_on(*machine, *rows, &of_bundle, rules, known);
  return report_json(*measured);
}

constexpr const char* kAddExamples = "Add examples; from the fifth on, one in ten is kept for validation";

}  // namespace

Adapter answering_adapter(Bundle& bundle, StateStore& store) {
  int64_t version = 0;
  std::optional<MappedTensors> mapped = store.answering(&version);
  Adapter adapter = adapter_from(bundle, std::move(mapped));
  adapter.version = version;
  return adapter;
}

std::optional<Adapter> adapter_of_version(Bundle& bundle, StateStore& store, int64_t version) {
  if (version == 0) return adapter_from(bundle, std::nullopt);
  std::optional<MappedTensors> kept = store.find_version(version);
  if (!kept) return std::nullopt;
  Adapter adapter = adapter_from(bundle, std::move(kept));
  adapter.version = version;
  return adapter;
}

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
  const ReportedCall call;
  const bool was_cancelled = personal.control.cancelled();  // before it began: then no run begins either
  personal.control.tell(Phase::open);
  const auto lock = personal.store.trainer_lock();
  ChosenRun chosen = choose_run(personal.bundle.manifest(), personal.store, request);
  if (was_cancelled && !chosen.goes_on) throw Abandoned{};
  const Run run = chosen_run(personal, request, chosen);
  const Method& method = chosen.method;
  const Fitting fitting = by_fitting_plans(method, personal.control.limits());

  TrainReport report = call.begun(personal, run, fitting);
  MemoryGuard guard(personal.control.limits());
  refuse_what_cannot_fit(fitting, personal.control.limits(), guard);
  std::unique_ptr<Steps> machine = personal.make_machine(fitting.method, guard, personal.store.scratch_path());
  const Trained trained = train_run(personal, request, run, method, machine, guard, report);
  return call.finished(report, trained, personal, guard, machine.get());
}

std::string evaluate_split(Personal& personal, const std::string& split) {
  if (split == "behaviour") {
    BehaviourSample sample = behaviour_sample(personal.bundle);
    const int64_t rows = sample.rows ? static_cast<int64_t>(sample.rows->size()) : 0;
    return judged(
        personal, "the bundle's behaviour rows", "Build the bundle again, with answers of the model's own", true,
        [&] { return sample.rows ? std::move(sample.rows) : no_rows(); }, rows);
  }
  if (split != "train" && split != "validation")
    throw Error(Kind::Config, setting("split"), "'" + split + "'", "'train', 'validation' or 'behaviour'", "Name one of these");
  const std::string subject = "examples of split '" + split + "'";
  const Split which = split == "train" ? Split::train : Split::validation;
  try {
    return judged(
        personal, subject, kAddExamples, false, [&] { return user_rows(personal.store, personal.store.rows(which)); },
        personal.store.example_count(which));
  } catch (const RowForgotten&) {
    throw Error(Kind::Data, subject, "one that was forgotten meanwhile", "examples that stay", "Evaluate again");
  }
}

std::string evaluate_rows(Personal& personal, std::vector<TokenRow> rows, int64_t examples) {
  return judged(personal, setting("examples"), kAddExamples, false, [&] { return given_rows(std::move(rows)); }, examples);
}

}  // namespace bespoke
