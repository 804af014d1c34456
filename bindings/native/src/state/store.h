// SPDX-License-Identifier: Apache-2.0
// StateStore: everything that a device keeps for one user, behind one object (docs/reference/state_format.md).
// Examples are added, listed and forgotten at any time, while somebody trains too.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "error.h"
#include "state/federation.h"
#include "state/records.h"

namespace bespoke {

class Database;
class LockFile;
class NoteIndex;
class TensorShapes;
class Transaction;

// The right to train, for as long as it lives; the kernel takes it back when the process dies. The scratch file is removed on both ends.
class TrainerLock {
 public:
  // StateLocked, naming who holds it. `overwrite_scratch`: zeroes a killed trainer's scratch file before it removes it.
  TrainerLock(const std::string& folder, const std::string& purpose, bool overwrite_scratch = false);
  ~TrainerLock();
  TrainerLock(const TrainerLock&) = delete;
  TrainerLock& operator=(const TrainerLock&) = delete;

 private:
  std::string folder_;
  std::unique_ptr<LockFile> file_;
};

// Rows of a stored example, of its JSON, by another tokenizer; none drops it.
using Retokenize = std::function<std::vector<TokenRow>(const std::string& json)>;

// May be used by one thread at a time, its folder by any number of processes. All methods may throw StateError (damaged,
// unwritable), Unavailable (another process keeps it busy) and, where they write, DiskFull; what was committed before is intact then.
class StateStore {
 public:
  // Opens the state in `folder`, creating it where there is none, and removes what a killed process left. `adapter`: name and shape
  // of every piece of the bundle's adapter. StateError where the state is damaged, of another version, base or adapter.
  static std::unique_ptr<StateStore> open(const std::string& folder, const std::string& base_sha256,
                                          const std::vector<StateTensor>& adapter) {
    return open(folder, base_sha256, adapter, false);
  }
  // Opens a state of another base: all or nothing, its examples are tokenized again, runs and adapters deleted. A DataError of
  // `retokenize` is passed on, naming the example, and nothing is changed. StateLocked while somebody trains.
  static std::unique_ptr<StateStore> reset_for_new_base(const std::string& folder, const std::string& base_sha256,
                                                        const std::vector<StateTensor>& adapter, const std::string& text_rules,
                                                        const Retokenize& retokenize);
  // The rows of examples are of these text rules (BundleText::rules). Where the stored ones are of others, all are made again, in one
  // transaction, an unfinished run ends, and adapters of another tokenizer or chat template do not answer while these hold. StateError,
  // and nothing changed, where an example no longer fits; StateLocked while somebody trains. A state that does not know its rules, new or
  // of version 1, is taken to be of these.
  void use_text_rules(const std::string& rules, const Retokenize& retokenize);
  ~StateStore();
  StateStore(const StateStore&) = delete;
  StateStore& operator=(const StateStore&) = delete;

  const std::string& folder() const { return folder_; }
  std::unique_ptr<TrainerLock> trainer_lock(const std::string& purpose = "training");
  std::string scratch_path() const;  // where the holder of the lock may make its scratch file, and unlink it once it is mapped

  // Examples
  // Canonical JSON and id (by default its sha256) of an example. DataError for what `add_example` would refuse with any rows: to be
  // asked before the work of tokenizing.
  static Identified identified(const std::string& json, std::optional<std::string> id);
  // Same id and same content: nothing happens. DataError for same id and other content, or for rows without a trained token.
  AddedExample add_example(const Identified& example, const std::vector<TokenRow>& rows, Use use = Use::any);
  std::vector<AddedExample> add_examples(const std::vector<NewExample>& examples);  // all of them or none, in one transaction
  // In the order in which they were added: at most `most` (0: all) behind `after`, an id (empty: from the first one on). DataError where
  // there is no such id.
  std::vector<ExampleInfo> examples(const std::string& after = "", int64_t most = 0);
  // Passages of the examples' words, the nearest to the question first (state/notes.h). The first call indexes all examples.
  std::vector<Note> nearest_notes(const std::string& question, size_t most);
  // Deletes an example and everything learned from it; no file of the folder holds a byte of it afterwards. Every accepted adapter, slot
  // and journal whose run saw it goes; an unfinished one ends ("example_forgotten"). May be called again after an interruption, and for
  // an id that is not there. A trainer at work learns of it from `ended_because` or at its next commit.
  Forgotten forget(const std::string& id);
  int64_t example_count(std::optional<Split> split = std::nullopt);
  std::vector<RowPlace> rows(Split split);               // in the order in which examples were added, then of windows
  std::vector<RowPlace> rows(int64_t run, Split split);  // of a run's examples, in its order
  // Tokens and mask (1 where the token is trained on), `row.length` each. False: the example was forgotten meanwhile.
  [[nodiscard]] bool read_row(const RowPlace& row, int32_t* tokens, uint8_t* mask);
  [[nodiscard]] bool read_rejected(const RowPlace& row, int32_t* tokens, uint8_t* mask);  // of a row that has a rejected answer

  // Runs
  // Over all examples that there are, from the newest adapter or the base. `settings`: JSON object. StateError while another run is
  // unfinished.
  Run start_run(const std::string& method, int64_t seed, const std::string& settings, int64_t steps);
  // From a version, or the base (none). StateError where there is no such version.
  Run start_run(const std::string& method, int64_t seed, const std::string& settings, int64_t steps, std::optional<int64_t> started_from);
  std::optional<Run> current_run();  // the unfinished one
  Run run(int64_t id);
  std::vector<std::string> run_example_ids(int64_t run);
  std::optional<std::string> ended_because(int64_t run);  // one cheap look, to take between steps; "reset" where it is gone
  bool end_run(int64_t run, const std::string& reason);   // drops its slots; false where it had ended before

  // Commits adapter and optimizer state of a step, streamed from where they lie to a file. True: it survives whatever happens now.
  // False, and nothing is written: the run has ended meanwhile. `cursor` and each of `metrics`: JSON objects.
  // AdapterError where `tensors` are not the adapter's pieces and optimizer state of theirs, `<piece>.<state>`.
  bool commit_step(int64_t run, int64_t step, const std::string& cursor, const std::vector<StateTensor>& tensors,
                   const std::vector<std::string>& metrics = {});
  // Commits steps of a replayable plan in one transaction. False, and nothing written, where the run has ended.
  bool append_journal(int64_t run, const std::vector<JournalRow>& rows);
  std::optional<JournalRow> next_journal_row(int64_t run, int64_t after_step);  // the first one after that step
  // Verified; none before the first. `expected`: name and shape of all that the run's method keeps, as its plan has it. StateError
  // where the slot holds anything else.
  std::optional<Slot> latest_slot(int64_t run, const std::vector<StateTensor>& expected);
  // Metrics of all committed steps in order, or the last first; `look` returns false to see no more.
  void each_metrics(int64_t run, bool last_first, const std::function<bool(const std::string& json)>& look);

  int64_t adapter_bytes() const;       // of the file of an adapter
  int64_t bytes_written(int64_t run);  // to tensor files that were committed for it; those of an accepted adapter, too

  // The best step of a run. What a step is worth follows from the run's seed, settings and examples: it may be kept before the step is
  // committed, and a run that resumes before such a step finds it known.
  HeldOut held_out(int64_t run);                      // the held-out examples of a run, dealt in two
  std::vector<JudgedStep> judged_steps(int64_t run);  // in their order
  // `best`: the adapter of this step, where no step before was as good; null: one was. False, and nothing kept, where the run has ended.
  bool keep_judged_step(int64_t run, const JudgedStep& judged, const std::vector<StateTensor>* best);
  std::optional<BestStep> best_step(int64_t run);  // verified; none: not judged yet, or the run has ended
  // Keeps the adapter of a step as the best one of a run that has judged none. False, and nothing kept, where the run has ended.
  bool keep_only_step(int64_t run, int64_t step, const std::vector<StateTensor>& adapter);
  // Puts another adapter in the place of the best step's, and drops the losses that were measured of it. False as above.
  bool replace_best_step(int64_t run, int64_t step, const std::vector<StateTensor>& adapter);

  // Answers that the gate has let the adapter of a step give, by the sha256 of their prompts. None is kept of a run that has ended.
  std::optional<std::vector<int32_t>> answer(int64_t run, int64_t step, const std::string& prompt);
  void keep_answer(int64_t run, int64_t step, const std::string& prompt, const std::vector<int32_t>& tokens);

  // Accepted adapters
  // Keeps the adapter of a step of a run as the one that answers: its version. None, and nothing kept, where the run was undone meanwhile.
  std::optional<int64_t> accept(int64_t run, int64_t step, const std::vector<StateTensor>& tensors, const std::string& metrics);
  // Keeps an adapter that was trained elsewhere as the one that answers: its version. `source` says where it came from. The caller
  // holds the trainer's lock, as for the two below.
  int64_t import_version(const std::vector<StateTensor>& tensors, const std::string& source);
  // Drops the adapter that answers; the one before it does then, or the base (none). An unfinished run ends ("rolled_back"): it would
  // bring back what its user did not want.
  std::optional<Version> rollback();
  void reset();                                           // deletes all runs and adapters; examples stay, the base answers
  std::vector<Version> accepted();                        // oldest first
  std::optional<Version> current_version();               // the adapter that answers; none: the base does
  std::optional<MappedTensors> find_version(int64_t id);  // verified; none: it has gone
  MappedTensors load_version(int64_t id);                 // verified; StateError where it has gone
  // Tensors of the adapter that answers, verified; none: the base does. Asked for one after the other, another process may have taken
  // the version away in between. `version`: its id; 0: the base.
  std::optional<MappedTensors> answering(int64_t* version = nullptr);

  // Federated learning, by the name of the task (state/federation.h)
  std::optional<Federation> federation(const std::string& task);  // none: the user has never joined it
  void join_federation(const std::string& task);
  void leave_federation(const std::string& task);  // what was to be sent goes, and the shared adapter; what was spent stays known
  // What a server has sent, to work through. It replaces the one before, and confirms numbers of these rounds. Without a `document` it
  // only does that. False, and nothing kept, where the user has left.
  bool keep_document(const std::string& task, const std::optional<std::string>& document, const std::vector<int64_t>& taken, bool done,
                     double wait_seconds);
  // Both leave another document that has come meanwhile. One that was refused is no end of the task either: the server is asked again.
  void drop_document(const std::string& task, const std::string& document);
  void refuse_document(const std::string& task, const std::string& document);
  // The adapter after a round. `adapter` null: it is the one before. `measured`: numbers of a round, journaled before they are offered.
  // They are left out where one of their examples was forgotten meanwhile. False, and nothing kept, where the user has left or the
  // adapter was another one meanwhile.
  bool commit_rounds(const std::string& task, const FollowedRounds& followed, const std::vector<StateTensor>* adapter,
                     const RoundNumbers* measured);
  std::optional<MappedTensors> shared_adapter(const std::string& task);  // verified; none before the first round
  std::vector<RoundNumbers> outbox(const std::string& task);
  bool has_measured(const std::string& task, int64_t round);

  // Losses that the gate measured: of a version, of the base (0), or of what a run has learned (minus its id), on rows that `rows` names.
  // None is kept of a version that has gone or a run that has ended.
  std::optional<double> loss(int64_t version, const std::string& rows);
  void keep_loss(int64_t version, const std::string& rows, double loss);

 private:
  struct ExampleCounts {  // `data_version`: SQLite's, which changes when another connection commits
    int64_t data_version, examples, validation;
  };

  StateStore(std::string folder, std::string base_sha256, std::unique_ptr<Database> database, std::unique_ptr<TensorShapes> shapes);
  static std::unique_ptr<StateStore> open(const std::string& folder, const std::string& base_sha256,
                                          const std::vector<StateTensor>& adapter, bool any_base);
  static void check_id(const std::string& id);
  // StateError where another process has moved the state to another base: adapters of the two must not meet.
  void check_base_again();
  ExampleCounts counted();
  AddedExample add_within(const NewExample& added, ExampleCounts& counts);  // inside a transaction
  Run start_run_within(Transaction& transaction, const std::string& method, int64_t seed, const std::string& settings, int64_t steps,
                       std::optional<int64_t> started_from);
  bool end(int64_t run, const std::string& reason);  // inside a transaction
  bool keep_step(int64_t run, int64_t step, std::optional<double> loss, const std::vector<StateTensor>* best,
                 bool measured_another = false);
  std::optional<std::string> stored_text_rules();
  void tokenize_all_again(const Retokenize& retokenize);  // inside a transaction
  std::optional<int64_t> keep(std::optional<int64_t> run, int64_t step, const std::vector<StateTensor>& tensors, const std::string& metrics,
                              const std::optional<std::string>& source);
  void sweep(bool overwrite = false);

  std::string folder_, base_sha256_;
  std::unique_ptr<Database> database_;
  std::unique_ptr<TensorShapes> shapes_;
  std::optional<std::string> text_rules_;  // of the rows that this store adds
  std::unique_ptr<NoteIndex> notes_;       // made when notes are asked for
  std::optional<ExampleCounts> counts_;    // what `add_example` knows of what is committed
};

}  // namespace bespoke
