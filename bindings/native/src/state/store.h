// SPDX-License-Identifier: Apache-2.0
// StateStore: everything that a device keeps for one user, behind one object; the folder of sdk/bespoke/state, shared with it.
// This is the half that training needs. Examples are added, listed and forgotten by others, at any time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "error.h"
#include "state/records.h"

namespace bespoke {

class Database;
class AdapterShapes;

// The right to train, for as long as it lives; the kernel takes it back when the process dies. The scratch file is removed on both ends.
class TrainerLock {
 public:
  TrainerLock(const std::string& folder, const std::string& purpose);  // StateLocked, naming who holds it
  ~TrainerLock();
  TrainerLock(const TrainerLock&) = delete;
  TrainerLock& operator=(const TrainerLock&) = delete;

 private:
  std::string folder_;
  int descriptor_;
};

// May be used by one thread at a time, its folder by any number of processes. All methods may throw StateError (damaged, busy,
// unwritable) and, where they write, DiskFull; what was committed before is intact then.
class StateStore {
 public:
  // Opens the state in `folder`, creating it where there is none, and removes what a killed process left. `adapter`: name and shape
  // of every piece of the bundle's adapter. StateError where the state is damaged, of another version, base or adapter.
  static std::unique_ptr<StateStore> open(const std::string& folder, const std::string& base_sha256,
                                          const std::vector<StateTensor>& adapter);
  ~StateStore();
  StateStore(const StateStore&) = delete;
  StateStore& operator=(const StateStore&) = delete;

  const std::string& folder() const { return folder_; }
  std::unique_ptr<TrainerLock> trainer_lock(const std::string& purpose = "training");
  std::string scratch_path() const;  // where the holder of the lock may make its scratch file, and unlink it once it is mapped

  // Examples
  int64_t example_count(std::optional<Split> split = std::nullopt);
  std::vector<RowPlace> rows(Split split);               // in the order in which examples were added, then of windows
  std::vector<RowPlace> rows(int64_t run, Split split);  // of a run's examples, in its order
  // Tokens and mask (1 where the token is trained on), `row.length` each. False: the example was forgotten meanwhile.
  bool read_row(const RowPlace& row, int32_t* tokens, uint8_t* mask);

  // Runs
  // Over all examples that there are, from a version or the base. `settings`: JSON object. StateError while another is unfinished.
  Run start_run(const std::string& method, int64_t seed, const std::string& settings, int64_t steps,
                std::optional<int64_t> started_from);
  std::optional<Run> current_run();  // the unfinished one
  Run run(int64_t id);
  std::optional<std::string> ended_because(int64_t run);  // one cheap look, to take between steps; "reset" where it is gone
  bool end_run(int64_t run, const std::string& reason);   // drops its slots; false where it had ended before

  // Commits adapter and optimizer state of a step, streamed from where they lie to a file. True: it survives whatever happens now.
  // False, and nothing is written: the run has ended meanwhile. `cursor` and each of `metrics`: JSON objects.
  // AdapterError where `tensors` are not the adapter's pieces and `<piece>.<state>` of the same shapes.
  bool commit_step(int64_t run, int64_t step, const std::string& cursor, const std::vector<StateTensor>& tensors,
                   const std::vector<std::string>& metrics = {});
  // Commits steps of a replayable plan in one transaction. False, and nothing written, where the run has ended.
  bool append_journal(int64_t run, const std::vector<JournalRow>& rows);
  std::optional<JournalRow> next_journal_row(int64_t run, int64_t after_step);  // the first one after that step
  std::optional<Slot> latest_slot(int64_t run);                                 // verified; none before the first
  // Metrics of all committed steps in order, or the last first; `look` returns false to see no more.
  void each_metrics(int64_t run, bool last_first, const std::function<bool(const std::string& json)>& look);

  // Accepted adapters
  // Keeps an adapter of a run as the one that answers: its version. None, and nothing kept, where the run was undone meanwhile.
  std::optional<int64_t> accept(int64_t run, const std::vector<StateTensor>& tensors, const std::string& metrics);
  std::vector<Version> accepted();           // oldest first
  std::optional<Version> current_version();  // the adapter that answers; none: the base does
  MappedTensors load_version(int64_t id);    // verified
  // Tensors of the adapter that answers, verified; none: the base does. Asked for one after the other, another process may have taken
  // the version away in between.
  std::optional<MappedTensors> answering();

 private:
  StateStore(std::string folder, std::unique_ptr<Database> database, std::unique_ptr<AdapterShapes> shapes);
  void sweep(bool overwrite = false);

  std::string folder_;
  std::unique_ptr<Database> database_;
  std::unique_ptr<AdapterShapes> shapes_;
};

}  // namespace bespoke
