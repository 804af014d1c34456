// SPDX-License-Identifier: Apache-2.0
// Accepted adapters: the newest one answers, three are kept, the one that an unfinished run started from besides.
#include "state/database.h"
#include "state/errors.h"
#include "state/lock.h"
#include "state/losses.h"
#include "state/run_bytes.h"
#include "state/store.h"
#include "state/tensor_files.h"
#include "state/stored_text.h"
#include "state/undone.h"
#include "this_call.h"

namespace bespoke {

namespace {

constexpr int64_t kVersionsKept = 3;

Version version_of(const Statement& row) {
  Version version{row.number(0), row.maybe_number(1), row.number(2), row.text(3), row.text(4), row.maybe_text(5), row.number(6) != 0};
  if (!is_json_object(version.metrics))
    throw damaged("metrics of adapter " + std::to_string(version.id), "text that is no JSON object", "a JSON object");
  return version;
}

// Whether an adapter was trained with the tokenizer and the chat template that the bundle has. Another one does not answer: of other
// tokens it knows nothing, until a run that starts from it is judged.
#define BESPOKE_ANSWERS "(text_rules IS NULL OR substr(text_rules, 1, 32) IS (SELECT substr(text, 1, 32) FROM state))"

const char* const kSelectVersions = "SELECT id, run, step, metrics, accepted_at, source, NOT " BESPOKE_ANSWERS " FROM versions ";

// Whether an adapter of the run may be kept: not where it has seen what is forgotten, or is undone.
bool may_be_kept(Database& database, int64_t run) {
  Statement statement(database, "SELECT ended_because FROM runs WHERE id = ?");
  if (!statement.bind(run).step()) return false;
  const std::string ended = statement.text(0);
  return ended != "example_forgotten" && ended != "rolled_back";
}

}  // namespace

std::optional<int64_t> StateStore::accept(int64_t run, int64_t step, const std::vector<StateTensor>& tensors, const std::string& metrics) {
  return keep(run, step, tensors, metrics, std::nullopt);
}

int64_t StateStore::import_version(const std::vector<StateTensor>& tensors, const std::string& source) {
  return keep(std::nullopt, 0, tensors, "{}", source).value();  // only a run can be undone
}

std::optional<int64_t> StateStore::keep(std::optional<int64_t> run, int64_t step, const std::vector<StateTensor>& tensors,
                                        const std::string& metrics, const std::optional<std::string>& source) {
  FilesLock lock(folder_);
  check_base_again();
  check_tensors(tensors, *shapes_, false);
  ThisCall::check();
  const Committed committed;  // a file and its row, together
  int64_t number = database_->number("SELECT coalesce(max(id), 0) + 1 FROM versions");
  TensorFile record = write_tensors(folder_, kAcceptedKind, number, tensors);
  std::optional<int64_t> version;
  undone_when_full(folder_, record, [&] {
    Transaction transaction(*database_);
    if (run && !may_be_kept(*database_, *run)) return;
    std::string accepted_at = now();
    Statement(*database_,
              "INSERT INTO versions (run, step, metrics, source, file, sha256, bytes, accepted_at, text_rules) "
              "SELECT ?, ?, ?, ?, ?, ?, ?, ?, text FROM state")
        .bind(run)
        .bind(step)
        .bind(metrics)
        .bind(source)
        .bind(record.file)
        .bind(record.sha256)
        .bind(record.bytes)
        .bind(accepted_at)
        .run();
    int64_t id = database_->last_id();
    if (run) count_written(*database_, *run, record.bytes);
    Statement(*database_,
              "DELETE FROM versions WHERE id NOT IN (SELECT id FROM versions ORDER BY id DESC LIMIT ?) "
              "AND id NOT IN (SELECT started_from FROM runs WHERE ended_because IS NULL AND started_from IS NOT NULL)")
        .bind(kVersionsKept)
        .run();
    drop_stale_losses(*database_);
    transaction.commit();
    version = id;
  });
  sweep();
  return version;
}

std::optional<Version> StateStore::rollback() {
  FilesLock lock(folder_);
  {
    Transaction transaction(*database_);
    const int64_t newest =
        database_->number("SELECT coalesce((SELECT max(id) FROM versions WHERE " BESPOKE_ANSWERS "), (SELECT max(id) FROM versions), 0)");
    if (newest) {
      Statement(*database_, "DELETE FROM versions WHERE id = ?").bind(newest).run();
      drop_stale_losses(*database_);
      const int64_t unfinished = database_->number("SELECT coalesce(max(id), 0) FROM runs WHERE ended_because IS NULL");
      if (unfinished) end(unfinished, "rolled_back");
    }
    transaction.commit();
  }
  const Committed committed;
  sweep();
  return current_version();
}

std::vector<Version> StateStore::accepted() {
  std::vector<Version> found;
  Statement statement(*database_, std::string(kSelectVersions) + "ORDER BY id");
  while (statement.step()) found.push_back(version_of(statement));
  return found;
}

std::optional<Version> StateStore::current_version() {
  Statement statement(*database_, std::string(kSelectVersions) + "WHERE " BESPOKE_ANSWERS " ORDER BY id DESC LIMIT 1");
  if (!statement.step()) return std::nullopt;
  return version_of(statement);
}

std::optional<MappedTensors> StateStore::find_version(int64_t id) {
  FilesLock lock(folder_);
  check_base_again();
  Statement statement(*database_, "SELECT file, sha256, bytes FROM versions WHERE id = ?");
  if (!statement.bind(id).step()) return std::nullopt;
  return read_tensor_file(folder_, {statement.text(0), statement.text(1), statement.number(2)}, *shapes_);
}

MappedTensors StateStore::load_version(int64_t id) {
  std::optional<MappedTensors> found = find_version(id);
  if (!found)
    throw Error(Kind::State, "adapter version " + std::to_string(id), "no such version", "one of those accepted() lists",
                "Ask current_version(): it may have been rolled back or forgotten");
  return std::move(*found);
}

std::optional<MappedTensors> StateStore::answering(int64_t* version) {
  FilesLock lock(folder_);
  check_base_again();
  if (version) *version = 0;
  Statement statement(*database_, "SELECT file, sha256, bytes, id FROM versions WHERE " BESPOKE_ANSWERS " ORDER BY id DESC LIMIT 1");
  if (!statement.step()) return std::nullopt;
  if (version) *version = statement.number(3);
  return read_tensor_file(folder_, {statement.text(0), statement.text(1), statement.number(2)}, *shapes_);
}

}  // namespace bespoke
