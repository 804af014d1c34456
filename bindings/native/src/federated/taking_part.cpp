// SPDX-License-Identifier: Apache-2.0
#include "federated/taking_part.h"

#include <cmath>
#include <fstream>

#include "federated/adapter_hash.h"
#include "federated/half.h"
#include "federated/private_numbers.h"
#include "federated/received_files.h"
#include "federated/snapshot.h"
#include "format/owned_json.h"
#include "train/gate.h"
#include "train/reported_call.h"
#include "train/tensor_views.h"

namespace bespoke {

namespace {

using Clock = std::chrono::steady_clock;

// One call's work on the document of the server.
class Participation {
 public:
  Participation(Personal& personal, const FederationRecord& record, const MakeFederatedMachine& make_machine)
      : personal_(personal), record_(record), make_machine_(make_machine), files_(personal.store.folder()),
        guard_(personal.control.limits()) {}

  FederationReport run() {
    const auto began = Clock::now();
    personal_.control.tell(Phase::open);
    const auto lock = personal_.store.trainer_lock("federated learning");
    state_ = *personal_.store.federation(record_.task);
    report_.round = state_.round;
    report_.differs = state_.differs;
    report_.not_measured_because = NotMeasured::not_asked;
    if (state_.document) {
      try {
        work_through(*state_.document);
      } catch (const Error& error) {
        if (error.kind == Kind::Data || error.kind == Kind::Adapter) {  // it would be refused again
          personal_.store.refuse_document(record_.task, *state_.document);
          files_.remove_all_but({});
        }
        throw;
      }
      personal_.store.drop_document(record_.task, *state_.document);
      files_.remove_all_but({});
    }
    report_.seconds = std::chrono::duration<double>(Clock::now() - began).count();
    return report_;
  }

 private:
  void work_through(const std::string& text) {
    const RoundDocument document = read_round_document(text, record_);
    const bool starts_again = document.snapshot && (document.snapshot->round > state_.round || state_.differs);
    bool follows = starts_again;
    for (const RoundSpan& span : document.rounds) follows |= span.last() > state_.round;
    if (follows || document.measure) {
      const Method& method = personal_.bundle.manifest().method(record_.method);
      const Fitting fitting = by_fitting_plans(method, personal_.control.limits());
      refuse_what_cannot_fit(fitting, personal_.control.limits(), guard_);
      machine_ = make_machine_(fitting.method, guard_, personal_.store.scratch_path());
      if (starts_again)
        start_from(*document.snapshot);
      else
        fill();
      for (const RoundSpan& span : document.rounds) follow(span);
      if (document.measure) measure(*document.measure, method);
      machine_.reset();
    }
  }

  void wait_for(const ReceivedFile& file) {
    files_.wait_for(file, personal_.control,
                    [&] { return personal_.store.federation(record_.task).value_or(Federation{}).document == state_.document; });
  }

  // Reads the file of a name, and waits for it.
  Received guidance_of(const std::vector<ReceivedFile>& files) {
    return [this, &files](const std::string& name, uint8_t* to, size_t bytes) {
      const auto found = std::find_if(files.begin(), files.end(), [&](const ReceivedFile& file) { return file.name == name; });
      if (found == files.end()) return false;
      const std::string subject = "guidance '" + name + "' of the server";
      if (found->size != static_cast<int64_t>(bytes))
        throw Error(Kind::Data, subject, std::to_string(found->size) + " bytes", std::to_string(bytes) + ", as the plan reads",
                    "Tell the owner of the server: it serves another bundle");
      wait_for(*found);
      std::ifstream file(files_.path_of(*found), std::ios::binary);
      if (!file.read(reinterpret_cast<char*>(to), static_cast<std::streamsize>(bytes)))
        throw Error(Kind::State, files_.path_of(*found), "a file that cannot be read", "the one that came", "Ask the server again");
      return true;
    };
  }

  void fill() {
    const std::optional<MappedTensors> shared = personal_.store.shared_adapter(record_.task);
    const TensorSource base = adapter_of(personal_.bundle);
    machine_->fill(shared ? source_of(*shared) : base);
  }

  void start_from(const Snapshot& snapshot) {
    const ReceivedFile file{"", snapshot.sha256, snapshot.size};
    wait_for(file);
    const SharedSnapshot read(files_.path_of(file), personal_.bundle);
    machine_->fill(read.tensors());
    round_ = snapshot.round;
    const bool right = adapter_hash(machine_->adapter()) == snapshot.adapter;
    if (!right)
      throw Error(Kind::Data, "the server's snapshot", "another adapter than the document names", "the one of that sha256",
                  "Tell the owner of the server");
    commit(snapshot.adapter, false);
  }

  // The rounds of a span that the adapter has not followed. Where it is another one afterwards, a snapshot has to take its place.
  void follow(const RoundSpan& span) {
    if (!round_) round_ = state_.round;
    if (span.last() <= *round_) return;
    if (span.first > *round_ + 1)
      throw Error(Kind::Data, "the server's rounds", "round " + std::to_string(span.first),
                  std::to_string(*round_ + 1) + ", the one behind those that were followed", "Ask the server again");
    static const std::vector<ReceivedFile> none;
    const Received guidance = guidance_of(span.guidance ? span.guidance->files : none);
    for (int64_t round = *round_ + 1; round <= span.last() && !report_.differs; round++) {
      for (int64_t number = 0; number < span.directions; number++) {
        const auto at = static_cast<size_t>((round - span.first) * span.directions + number);
        const float guided = span.guidance ? span.guidance->coefficients[static_cast<size_t>(number)] : 0;
        machine_->step_along(
            {static_cast<uint64_t>(record_.seed), static_cast<uint32_t>(round), number, span.coefficients[at], guided, guidance});
      }
      round_ = round;
      report_.followed++;
      const bool is_last = round == span.last();
      if (is_last && span.half) round_to_half();
      if (!is_last && Clock::now() - committed_ < std::chrono::seconds(kCommitSeconds)) continue;
      const std::string hash = adapter_hash(machine_->adapter());
      commit(hash, is_last && hash != span.adapter);
    }
  }

  // In place of the adapter, piece by piece: so a snapshot in float16 says all of it.
  void round_to_half() {
    std::vector<std::vector<float>> rounded;
    TensorSource source;
    for (const NamedTensor& piece : machine_->adapter()) {
      std::vector<float>& numbers = rounded.emplace_back(piece.data, piece.data + piece.elements());
      for (float& number : numbers) number = as_half(number);
      source[piece.name] = {numbers.data(), piece.shape};
    }
    machine_->fill(source);
  }

  void commit(const std::string& hash, bool differs) {
    const std::vector<NamedTensor> adapter = machine_->adapter();
    const std::vector<StateTensor> tensors = state_tensors(adapter);
    if (!personal_.store.commit_rounds(record_.task, {state_.round, *round_, hash, differs}, &tensors, nullptr)) throw Abandoned{};
    state_.round = *round_, state_.adapter = hash;
    report_.round = *round_, report_.differs = differs;
    committed_ = Clock::now();
    personal_.control.tell(Phase::commit, *round_);
  }

  void measure(const Measurement& asked, const Method& method) {
    const auto leave_out = [&](NotMeasured why) { report_.not_measured_because = why; };
    const std::string current = state_.adapter.empty() ? adapter_hash(machine_->adapter()) : state_.adapter;
    if (report_.differs || asked.adapter != current) {
      report_.differs = true;
      personal_.store.commit_rounds(record_.task, {state_.round, state_.round, current, true}, nullptr, nullptr);
      return leave_out(NotMeasured::another_adapter);
    }
    if (asked.round != state_.round + 1) return leave_out(NotMeasured::another_adapter);
    if (personal_.store.has_measured(record_.task, asked.round)) return leave_out(NotMeasured::measured_before);
    if (!can_pay(state_.spent, record_)) return leave_out(NotMeasured::budget_spent);
    RoundNumbers numbers{asked.round, "", cost_of_round(record_), {}};
    const std::vector<Batch> batches = batches_of(method, numbers.examples);
    if (batches.empty()) return leave_out(NotMeasured::no_examples);
    const std::vector<float> exact = measured(asked, batches);
    for (const float number : exact)
      if (!std::isfinite(number)) return leave_out(NotMeasured::not_finite);
    const std::vector<double> sent = made_private(exact, record_);
    numbers.numbers = Json{{"round", asked.round}, {"first", asked.first}, {"numbers", sent}}.dump();
    if (!personal_.store.commit_rounds(record_.task, {state_.round, state_.round, current, false}, nullptr, &numbers)) throw Abandoned{};
    if (!personal_.store.has_measured(record_.task, asked.round))
      return leave_out(NotMeasured::no_examples);  // one was forgotten meanwhile
    report_.measured = asked.round;
    report_.numbers = static_cast<int64_t>(sent.size());
    report_.not_measured_because.reset();
  }

  // Some of the user's rows for training, drawn by the system: as many as the method takes in a step.
  std::vector<Batch> batches_of(const Method& method, std::vector<int64_t>& examples) {
    const std::vector<RowPlace> places = personal_.store.rows(Split::train);
    const auto most = static_cast<size_t>(method.training.batch_size * method.training.accumulation);
    std::vector<RowPlace> chosen;
    for (const size_t row : drawn_rows(places.size(), most)) {
      chosen.push_back(places[row]);
      examples.push_back(places[row].example);
    }
    const auto rows = user_rows(personal_.store, chosen);
    EvaluationBatches all(*rows, method.training.batch_size, machine_->sequence_lengths(), personal_.bundle.manifest().vocab_size);
    std::vector<Batch> batches;
    for (Batch batch; all.next(batch);) batches.push_back(batch);
    return batches;
  }

  std::vector<float> measured(const Measurement& asked, const std::vector<Batch>& batches) {
    const Received guidance = guidance_of(asked.files);
    const auto direction = [&](int64_t number) {
      return Direction{static_cast<uint64_t>(record_.seed),
                       static_cast<uint32_t>(asked.round),
                       number,
                       static_cast<float>(asked.coefficient),
                       static_cast<float>(asked.guidance_coefficient),
                       guidance};
    };
    std::vector<float> numbers;
    const auto add = [&](const std::vector<float>& more) { numbers.insert(numbers.end(), more.begin(), more.end()); };
    const bool projects = machine_->projects();
    if (projects) machine_->measure(batches, direction(asked.first));
    for (int64_t number = asked.first; number < asked.first + asked.count; number++)
      add(projects ? machine_->project(direction(number)) : machine_->measure(batches, direction(number)));
    return numbers;
  }

  static constexpr int kCommitSeconds = 30;  // between two commits of rounds that are followed

  Personal& personal_;
  const FederationRecord& record_;
  const MakeFederatedMachine& make_machine_;
  ReceivedFiles files_;
  MemoryGuard guard_;
  Federation state_;
  FederationReport report_;
  std::unique_ptr<Machine> machine_;
  std::optional<int64_t> round_;  // of the machine's adapter
  Clock::time_point committed_ = Clock::now();
};

}  // namespace

const FederationRecord& federation_of(const Manifest& manifest) {
  if (!manifest.federation)
    throw Error(Kind::Config, "federation", "a bundle whose users learn each for themselves", "one that was built with a federation",
                "Build it again with one");
  return *manifest.federation;
}

const FederationRecord& joined_federation(const Manifest& manifest, StateStore& store) {
  const FederationRecord& record = federation_of(manifest);
  const std::optional<Federation> known = store.federation(record.task);
  if (!known || !known->joined)
    throw Error(Kind::Config, "federation '" + record.task + "'", "a user who has not joined it", "consent",
                "Show the user what leaves the device, and where that is agreed to, " + to_call(Verb::join));
  return record;
}

FederationReport take_part(Personal& personal, const MakeFederatedMachine& make_machine) {
  const FederationRecord& record = joined_federation(personal.bundle.manifest(), personal.store);
  try {
    return Participation(personal, record, make_machine).run();
  } catch (const RowForgotten&) {  // the rounds are followed; the next call measures other rows
    FederationReport report;
    report.round = personal.store.federation(record.task).value_or(Federation{}).round;
    report.not_measured_because = NotMeasured::no_examples;
    return report;
  }
}

std::string adopt_shared(Personal& personal) {
  const ReportedCall call;
  const FederationRecord& record = federation_of(personal.bundle.manifest());
  StateStore& store = personal.store;
  personal.control.tell(Phase::open);
  const auto lock = store.trainer_lock("judging the shared adapter");
  const std::optional<MappedTensors> shared = store.shared_adapter(record.task);
  if (!shared)
    throw Error(Kind::State, "the shared adapter", "none: no round was followed", "one after the first round",
                "First " + to_call(Verb::take_part));
  if (const std::optional<Run> unfinished = store.current_run()) {
    if (!judges_shared(*unfinished))
      throw Error(Kind::State, "run " + std::to_string(unfinished->id), "an unfinished run", "none",
                  "Train to its end, or " + to_call(Verb::abandon_run));
    store.end_run(unfinished->id, "replaced");
  }
  Method method = personal.bundle.manifest().method(record.method);
  method.training.steps = 1;
  const int64_t round = store.federation(record.task).value_or(Federation{}).round;
  const Run run = store.start_run(method.name, method.training.seed, settings_of_shared(method, round), 1, std::nullopt);
  const Fitting fitting = by_fitting_plans(method, personal.control.limits());
  TrainReport report = call.begun(personal, run, fitting);
  report.total_steps = 1;
  report.stopped_because = Stopped::finished;
  MemoryGuard guard(personal.control.limits());
  std::unique_ptr<Steps> machine;
  try {
    refuse_what_cannot_fit(fitting, personal.control.limits(), guard);
    store.keep_only_step(run.id, 1, shared->all());
    machine = personal.make_machine(fitting.method, guard, store.scratch_path());
    judge_run(personal, machine, run, method, guard, report);
  } catch (const RowForgotten&) {
    report.stopped_because = Stopped::example_forgotten;
  } catch (...) {  // it is judged again from the start
    store.end_run(run.id, "abandoned");
    throw;
  }
  return call.finished(report, {}, personal, guard, machine.get());
}

}  // namespace bespoke
