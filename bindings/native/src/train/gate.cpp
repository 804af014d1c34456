// SPDX-License-Identifier: Apache-2.0
#include "train/gate.h"

#include "exec/fitting_plans.h"
#include "state/stored_text.h"
#include "train/behaviour.h"
#include "train/checked_answers.h"
#include "train/cut_back.h"
#include "train/judged.h"
#include "train/stored_losses.h"
#include "train/tensor_views.h"

namespace bespoke {

namespace {

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

}  // namespace

void judge_run(Personal& personal, std::unique_ptr<Steps>& machine, const Run& run, const Method& method, MemoryGuard& guard,
               TrainReport& report) {
  Gate(personal, machine, run, method, guard, report).judge_run();
}

}  // namespace bespoke
