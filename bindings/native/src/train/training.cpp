// SPDX-License-Identifier: Apache-2.0
#include "train/training.h"

#include <algorithm>
#include <chrono>

#include "exec/fitting_plans.h"
#include "train/behaviour.h"
#include "train/checked_answers.h"
#include "train/cut_back.h"
#include "train/judged.h"
#include "train/report.h"
#include "train/run_length.h"
#include "train/stored_losses.h"
#include "train/tensor_views.h"
#include "state/stored_text.h"

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

// ---- the gate --------------------------------------------------------------------------------------------------------------

GateData gate_of(Personal& personal, const Run& run, const Method& method) {
  const Manifest& manifest = personal.bundle.manifest();
  HeldOut held_out = personal.store.held_out(run.id);
  std::vector<RowPlace> places = std::move(held_out.judging);
  GateData gate;
  gate.few = examples_of(places) + examples_of(held_out.choosing) < kFewHeldOut;
  gate.judged_on = JudgedOn::validation;
  if (places.empty()) {
    places = personal.store.rows(run.id, Split::train);
    gate.judged_on = places.empty() ? std::nullopt : std::optional(JudgedOn::train);
  }
  const std::vector<RowPlace> judged = judged_rows(places);
  gate.examples = examples_of(judged);
  gate.tokens = predicted(judged);
  gate.of_tokens = predicted(places);
  gate.user = user_rows(personal.store, judged);
  gate.general = bundle_rows(personal.bundle, manifest.data_valid);
  BehaviourSample behaviour = behaviour_sample(personal.bundle);
  gate.behaviour = std::move(behaviour.rows);
  gate.behaviour_tokens = behaviour.tokens;
  gate.general_tolerance = method.training.general_tolerance;
  gate.useful_gain = method.training.useful_gain;
  gate.rules = {method.training.batch_size, manifest.vocab_size};
  return gate;
}

// The gate of a run that has ended: what it learned at its best step answers from now on, or is dropped.
class Gate {
 public:
  // `machine` is dropped where answers are checked: the two do not take memory at the same time.
  Gate(Personal& personal, std::unique_ptr<Steps>& machine, const Run& run, const Method& method, MemoryGuard& guard, TrainReport& report)
      : personal_(personal), machine_(machine), run_(run), method_(method), guard_(guard), report_(report),
        best_(personal.store.best_step(run.id)), step_(best_ ? best_->step : report.total_steps) {}

  // Throws Abandoned where the call must end, RowForgotten.
  void judge_run() {
    tell();
    judge_adapter();
    const Judgement whole = report_.judgement;
    for (int cuts = 0; cuts < kMostCuts && report_.judgement.refused_because == Refused::behaviour_worse && cut_back(); cuts++)
      judge_adapter();
    if (!*report_.judgement.accepted) report_.judgement = whole;  // what was left of it was of no use
    if (scale_ < 1 && *report_.judgement.accepted) report_.judgement.scale = scale_;
    if (report_.stopped_because == Stopped::diverged) report_.judgement.refuse(Refused::diverged);
    if (*report_.judgement.accepted) check_answers();
    decide();
  }

 private:
  void tell() { personal_.control.tell(Phase::judge, report_.total_steps, run_.steps); }

  void judge_adapter() {
    if (best_) machine_->fill(source_of(best_->adapter));
    const Adapter answering = answering_adapter(personal_.bundle, personal_.store);
    const TensorSource base = adapter_of(personal_.bundle);
    StoredLosses of_answering(personal_.store, answering.version), of_base(personal_.store, 0), of_new(personal_.store, -run_.id, step_);
    const bool changed = step_ > 0 && report_.stopped_because != Stopped::diverged;
    report_.judgement = {};
    judge(*machine_, gate_of(personal_, run_, method_), {answering.tensors, of_answering}, {base, of_base}, of_new, changed,
          report_.judgement);
  }

  // Keeps less of what was learned, where answers to other questions became too much worse. False: a run that rehearses nothing is not
  // meant to keep them, or it has written all that it may.
  bool cut_back() {
    const Training& training = method_.training;
    if (training.general_share == 0 || bundle_rows(personal_.bundle, personal_.bundle.manifest().data_train)->size() == 0) return false;
    const double factor = cut(*report_.judgement.behaviour / *report_.judgement.behaviour_base - 1, training.general_tolerance);
    if (!(factor > 0)) return false;
    const int64_t written = personal_.store.bytes_written(run_.id) + 2 * personal_.store.adapter_bytes();  // this one and the accepted one
    if (training.write_mb_per_run && static_cast<double>(written) > *training.write_mb_per_run * 1e6) return false;
    std::vector<NamedTensor> adapter = machine_->adapter();
    ScaledAdapter scaled(adapter, factor, guard_);
    if (!personal_.store.replace_best_step(run_.id, step_, state_tensors(adapter))) throw RowForgotten{};
    best_ = personal_.store.best_step(run_.id);
    if (!best_) throw RowForgotten{};
    scale_ *= factor;
    return true;
  }

  void check_answers() {
    const Manifest& manifest = personal_.bundle.manifest();
    std::optional<Unchecked>& unchecked = report_.judgement.answers.unchecked_because;
    if (!manifest.data_behaviour) return;
    const auto rows = bundle_rows(personal_.bundle, manifest.data_behaviour);
    const std::vector<AskedAnswer> asked = asked_answers(*rows, manifest.text.stop_ids, manifest.context_length);
    if (!manifest.generation)
      unchecked = Unchecked::no_plan;
    else if (!has_room(plan_for_answers(manifest, personal_.control.limits()), personal_.control.limits()))
      unchecked = Unchecked::no_room;
    else if (asked.size() < kLeastAnswers)
      unchecked = Unchecked::few_answers;
    if (unchecked) return;
    keep_adapter();
    report_.judgement.accepted.reset();  // not judged, if the call has to end now
    try {
      ask(asked);
    } catch (const Error& error) {
      if (error.kind != Kind::Budget) throw;
      report_.judgement.answers = {};
      unchecked = Unchecked::no_room;  // the process holds more than the plan knows of
    }
    if (!report_.judgement.refused_because) report_.judgement.accepted = true;
  }

  // Into a file of the state, which is mapped: while the model answers, nothing of the adapter takes anonymous memory.
  void keep_adapter() {
    if (!best_) {
      const std::vector<NamedTensor> adapter = machine_->adapter();
      personal_.store.keep_only_step(run_.id, step_, state_tensors(adapter));
      best_ = personal_.store.best_step(run_.id);
      if (!best_) throw RowForgotten{};
    }
    guard_.observe();
    machine_.reset();
  }

  void ask(const std::vector<AskedAnswer>& asked) {
    const std::vector<int64_t>& stop_ids = personal_.bundle.manifest().text.stop_ids;
    const PlanRecord& plan = plan_for_answers(personal_.bundle.manifest(), personal_.control.limits());
    tell();
    const std::unique_ptr<AnswerSteps> model = personal_.make_answer_steps(plan, guard_);
    const std::vector<GivenAnswer> given =
        given_answers(*model, source_of(best_->adapter), asked, stop_ids, {personal_.store, run_.id, step_}, personal_.control);
    report_.judgement.answers = checked(asked, given);
    const auto learned = user_rows(personal_.store, personal_.store.rows(run_.id, Split::train));
    if (const auto why = refused_for(asked, given, *learned, stop_ids, personal_.control)) report_.judgement.refuse(*why);
  }

  void decide() {
    Judgement& judgement = report_.judgement;
    if (*judgement.accepted) {
      const std::string metrics =
          judgement_json(judgement.after ? &*judgement.after : nullptr, judgement.before ? &*judgement.before : nullptr);
      std::vector<NamedTensor> adapter;
      if (machine_) adapter = machine_->adapter();
      const std::vector<StateTensor> tensors = machine_ ? state_tensors(adapter) : best_->adapter.all();
      if (!personal_.store.accept(run_.id, step_, tensors, metrics)) judgement.refuse(Refused::withdrawn);
    }
    personal_.store.end_run(run_.id, name_of(report_.stopped_because));
  }

  Personal& personal_;
  std::unique_ptr<Steps>& machine_;
  const Run& run_;
  const Method& method_;
  MemoryGuard& guard_;
  TrainReport& report_;
  std::optional<BestStep> best_;
  const int64_t step_;
  double scale_ = 1;  // of what was learned, that is left
};

bool ends_run(Stopped reason) { return reason == Stopped::finished || reason == Stopped::no_better || reason == Stopped::diverged; }

struct Fitting {
  Method method;                         // with the plans that the limit leaves room for
  std::optional<uint64_t> memory_bytes;  // the budget that they were made for, where it is a smaller one
};

Fitting by_fitting_plans(const Method& method, const Limits& limits) {
  const SmallerPlans* smaller = fitting_plans(method.plans, method.smaller, limits);
  return smaller ? Fitting{method.by(*smaller), smaller->memory_bytes} : Fitting{method, std::nullopt};
}

void refuse_what_cannot_fit(const Method& method, int64_t estimate, int64_t idle, MemoryGuard& guard) {
  // The estimate is of a process of the model's own, which holds some of it already. What malloc held of earlier work was given back.
  guard.ask(std::max<int64_t>(0, idle + estimate - footprint_now()),
            "Training with '" + method.name + "' (estimated peak " + megabytes(estimate) + ")");
}

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
    if (ends_run(report.stopped_because)) Gate(personal, owned, run, method, guard, report).judge_run();
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
  const auto began = std::chrono::steady_clock::now();
  const Storage storage = storage_bytes();
  const bool was_cancelled = personal.control.cancelled();  // before it began: then no run begins either
  personal.control.tell(Phase::open);
  const auto lock = personal.store.trainer_lock();
  ChosenRun chosen = choose_run(personal.bundle.manifest(), personal.store, request);
  if (was_cancelled && !chosen.goes_on) throw Abandoned{};
  const Run run = chosen_run(personal, request, chosen);
  const Method& method = chosen.method;
  const Fitting fitting = by_fitting_plans(method, personal.control.limits());

  TrainReport report;
  report.method = run.method;
  report.trains = personal.bundle.manifest().lora_trains_a ? "both" : "B";
  report.run = run.id;
  report.total_steps = run.step;
  report.memory.estimate_bytes = static_cast<int64_t>(peak_of(fitting.method.plans));
  const std::optional<uint64_t> planned_for = fitting.memory_bytes ? fitting.memory_bytes : personal.bundle.manifest().memory_bytes;
  if (planned_for) report.memory.planned_for_bytes = static_cast<int64_t>(*planned_for);

  MemoryGuard guard(personal.control.limits());
  refuse_what_cannot_fit(method, report.memory.estimate_bytes, personal.control.limits().idle_bytes, guard);
  std::unique_ptr<Steps> machine = personal.make_machine(fitting.method, guard, personal.store.scratch_path());
  const Trained trained = train_run(personal, request, run, method, machine, guard, report);

  if (machine) report.longest_call_seconds = machine->longest_call_seconds();
  guard.observe();
  if (const int64_t limit = personal.control.limits().memory_bytes(); limit >= 0) report.memory.limit_bytes = limit;
  report.memory.idle_bytes = personal.control.limits().idle_bytes;
  report.memory.peak_bytes = guard.peak();
  report.memory.mapped_dirty_bytes = dirty_mapped_bytes();
  report.memory.file_bytes = guard.columns().read().file;
  const Storage now = storage_bytes();
  report.storage = {now.read - storage.read, now.written - storage.written};
  report.run_bytes_written = personal.store.bytes_written(run.id);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return report_json(report, trained);
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
