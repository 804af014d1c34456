// SPDX-License-Identifier: Apache-2.0
// Runs, their committed steps and their journal. A commit is a tensor file, flushed, then one transaction that names it. A run may
// end under its trainer's hands (an example is forgotten, by another process): commits then write nothing and say so.
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

constexpr int64_t kSlotsKept = 2;
constexpr const char* kReset = "reset";
const char* const kRunColumns = "id, method, seed, settings, steps, started_from, step, cursor, ended_because, started_at, ended_at";

std::string stored_json(std::string text, const std::string& subject) {
  if (!is_json_object(text)) throw damaged(subject, "text that is no JSON object", "a JSON object");
  return text;
}

void check_json(const std::string& text, const std::string& subject) {
  if (!is_json_object(text)) throw Error(Kind::State, subject, "text that is no JSON object", "a JSON object", "Correct the " + subject);
  if (text.size() > Database::kMostValueBytes)
    throw Error(Kind::State, subject, std::to_string(text.size()) + " bytes", "at most " + std::to_string(Database::kMostValueBytes),
                "Store less in the " + subject);
}

void check_number(const std::string& name, int64_t value) {
  if (value < 0)
    throw Error(Kind::State, name + " of a run", std::to_string(value), "an integer from 0 to 2^63 - 1", "Correct the " + name);
}

void check_order(int64_t run, int64_t step, int64_t least) {
  check_number("step", step);
  if (step < least)
    throw Error(Kind::State, "run " + std::to_string(run), "a commit of step " + std::to_string(step),
                "step " + std::to_string(least) + " or later: what was committed is not taken back",
                "Resume from latest_slot() and journal()");
}

// Moves an unfinished run to `step`; false where it has ended meanwhile.
bool advance(Database& database, int64_t run, int64_t step, const std::string& cursor) {
  Statement(database, "UPDATE runs SET step = ?, cursor = ? WHERE id = ? AND ended_because IS NULL")
      .bind(step)
      .bind(cursor)
      .bind(run)
      .run();
  return database.changed() > 0;
}

}  // namespace

Run StateStore::start_run(const std::string& method, int64_t seed, const std::string& settings, int64_t steps) {
  Transaction transaction(*database_);  // what answers may be forgotten at any time, but not within it
  // The newest, also one of other text rules: what it knows is worth going on from, and the gate compares with what answers.
  const int64_t newest = database_->number("SELECT coalesce(max(id), 0) FROM versions");
  return start_run_within(transaction, method, seed, settings, steps, newest ? std::optional(newest) : std::nullopt);
}

Run StateStore::start_run(const std::string& method, int64_t seed, const std::string& settings, int64_t steps,
                          std::optional<int64_t> started_from) {
  Transaction transaction(*database_);
  return start_run_within(transaction, method, seed, settings, steps, started_from);
}

Run StateStore::start_run_within(Transaction& transaction, const std::string& method, int64_t seed, const std::string& settings,
                                 int64_t steps, std::optional<int64_t> started_from) {
  check_number("seed", seed);
  check_number("steps", steps);
  check_json(settings, "settings of a run");
  check_base_again();
  {
    Statement unfinished(*database_, "SELECT id, method FROM runs WHERE ended_because IS NULL");
    if (unfinished.step())
      throw Error(Kind::State, "start of a run",
                  "run " + std::to_string(unfinished.number(0)) + " (" + unfinished.text(1) + "), which is unfinished", "one run at a time",
                  "Continue it, or end it first with end_run");
  }
  std::optional<int64_t> parent;
  if (started_from) {
    Statement version(*database_, "SELECT run FROM versions WHERE id = ?");
    if (!version.bind(*started_from).step())
      throw Error(Kind::State, "adapter version " + std::to_string(*started_from), "no such version", "an accepted one",
                  "Start from current_version()");
    parent = version.maybe_number(0);
  }
  std::string started_at = now();
  Statement(*database_,
            "INSERT INTO runs (method, seed, settings, steps, started_from, parent, step, cursor, started_at) "
            "VALUES (?, ?, ?, ?, ?, ?, 0, '{}', ?)")
      .bind(method)
      .bind(seed)
      .bind(settings)
      .bind(steps)
      .bind(started_from)
      .bind(parent)
      .bind(started_at)
      .run();
  int64_t id = database_->last_id();
  Statement(*database_, "INSERT INTO run_examples SELECT ?, row_number() OVER (ORDER BY key) - 1, key FROM examples").bind(id).run();
  transaction.commit();
  return run(id);
}

Run StateStore::run(int64_t id) {
  Statement statement(*database_, std::string("SELECT ") + kRunColumns + " FROM runs WHERE id = ?");
  if (!statement.bind(id).step())
    throw Error(Kind::State, "run " + std::to_string(id), "no such run", "one of this state", "Ask current_run()");
  Run found;
  found.id = statement.number(0);
  found.method = statement.text(1);
  found.seed = statement.number(2);
  found.settings = stored_json(statement.text(3), "settings of run " + std::to_string(id));
  found.steps = statement.number(4);
  found.started_from = statement.maybe_number(5);
  found.step = statement.number(6);
  found.cursor = stored_json(statement.text(7), "cursor of run " + std::to_string(id));
  found.ended_because = statement.maybe_text(8);
  found.started_at = statement.text(9);
  found.ended_at = statement.maybe_text(10);
  return found;
}

std::optional<Run> StateStore::current_run() {
  Transaction snapshot(*database_, Transaction::reads);
  int64_t count = 0, id = 0;
  {
    Statement statement(*database_, "SELECT id FROM runs WHERE ended_because IS NULL ORDER BY id");
    while (statement.step()) count++, id = statement.number(0);
  }
  if (count > 1) throw damaged(database_->subject(), std::to_string(count) + " unfinished runs", "one at most");
  if (!count) return std::nullopt;
  return run(id);
}

int64_t StateStore::adapter_bytes() const {
  std::vector<StateTensor> pieces;
  for (size_t piece = 0; piece < shapes_->size(); piece++) pieces.push_back(shapes_->piece(piece));
  return tensor_file_bytes(pieces);
}

int64_t StateStore::bytes_written(int64_t run) {
  Statement statement(*database_, "SELECT bytes_written FROM runs WHERE id = ?");
  return statement.bind(run).step() ? statement.number(0) : 0;
}

std::optional<std::string> StateStore::ended_because(int64_t run) {
  Statement statement(*database_, "SELECT ended_because FROM runs WHERE id = ?");
  if (!statement.bind(run).step()) return kReset;
  return statement.maybe_text(0);
}

bool StateStore::end_run(int64_t run, const std::string& reason) {
  FilesLock lock(folder_);
  bool ended = false;
  {
    Transaction transaction(*database_);
    ended = end(run, reason);
    transaction.commit();
  }
  const Committed committed;
  sweep();
  return ended;
}

bool StateStore::end(int64_t run, const std::string& reason) {
  const std::string ended_at = now();
  Statement(*database_, "UPDATE runs SET ended_because = ?, ended_at = ? WHERE id = ? AND ended_because IS NULL")
      .bind(reason)
      .bind(ended_at)
      .bind(run)
      .run();
  const bool ended = database_->changed() > 0;
  if (!ended) return false;
  Statement(*database_, "DELETE FROM slots WHERE run = ?").bind(run).run();
  Statement(*database_, "DELETE FROM best_steps WHERE run = ?").bind(run).run();
  Statement(*database_, "DELETE FROM answers WHERE run = ?").bind(run).run();
  drop_stale_losses(*database_);
  return true;
}

bool StateStore::commit_step(int64_t run, int64_t step, const std::string& cursor, const std::vector<StateTensor>& tensors,
                             const std::vector<std::string>& metrics) {
  FilesLock lock(folder_);
  check_tensors(tensors, *shapes_, true);
  check_json(cursor, "cursor of a step");
  for (const std::string& entry : metrics) check_json(entry, "metrics of a step");
  bool committed = false;
  std::optional<int64_t> at;
  {
    Statement statement(*database_, "SELECT step FROM runs WHERE id = ? AND ended_because IS NULL");
    if (statement.bind(run).step()) at = statement.number(0);
  }
  if (at) {
    check_order(run, step, *at);
    int64_t number = database_->number("SELECT coalesce(max(id), 0) + 1 FROM slots");
    TensorFile record = write_tensors(folder_, kSlotKind, number, tensors);
    undone_when_full(folder_, record, [&] {
      Transaction transaction(*database_);
      committed = advance(*database_, run, step, cursor);
      if (committed) {
        Statement(*database_, "INSERT INTO slots (run, step, cursor, file, sha256, bytes) VALUES (?, ?, ?, ?, ?, ?)")
            .bind(run)
            .bind(step)
            .bind(cursor)
            .bind(record.file)
            .bind(record.sha256)
            .bind(record.bytes)
            .run();
        count_written(*database_, run, record.bytes);
        Statement insert(*database_, "INSERT INTO metrics (run, step, json) VALUES (?, ?, ?)");
        for (const std::string& entry : metrics) {
          insert.bind(run).bind(step).bind(entry).run();
          insert.again();
        }
        Statement(*database_, "DELETE FROM slots WHERE run = ? AND id NOT IN (SELECT id FROM slots WHERE run = ? ORDER BY id DESC LIMIT ?)")
            .bind(run)
            .bind(run)
            .bind(kSlotsKept)
            .run();
      }
      transaction.commit();
    });
  }
  sweep();
  return committed;
}

bool StateStore::append_journal(int64_t run, const std::vector<JournalRow>& rows) {
  for (const JournalRow& row : rows) {
    check_number("step", row.step);
    check_json(row.cursor, "cursor of a step");
    check_json(row.metrics, "metrics of a step");
    if (4 * row.values.size() > Database::kMostValueBytes)
      throw Error(Kind::State, "journal values of step " + std::to_string(row.step), std::to_string(row.values.size()) + " numbers",
                  "at most " + std::to_string(Database::kMostValueBytes / 4), "Record fewer of them");
  }
  Transaction transaction(*database_);
  int64_t least = 0;
  {
    Statement statement(*database_,
                        "SELECT step, EXISTS (SELECT 1 FROM journal WHERE run = id) OR EXISTS (SELECT 1 FROM slots WHERE run = id) "
                        "FROM runs WHERE id = ? AND ended_because IS NULL");
    if (!statement.bind(run).step()) return false;
    if (statement.number(1)) least = statement.number(0) + 1;
  }
  for (const JournalRow& row : rows) {
    check_order(run, row.step, least);
    least = row.step + 1;
  }
  if (!rows.empty()) {
    Statement insert(*database_, "INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?)");
    for (const JournalRow& row : rows) {
      insert.bind(run).bind(row.step).bind(row.cursor);
      insert.bind(Bytes{reinterpret_cast<const uint8_t*>(row.values.data()), 4 * row.values.size()});
      insert.bind(int64_t{row.rejected}).bind(row.metrics).run();
      insert.again();
    }
    advance(*database_, run, rows.back().step, rows.back().cursor);
  }
  transaction.commit();
  return true;
}

std::optional<JournalRow> StateStore::next_journal_row(int64_t run, int64_t after_step) {
  Statement statement(*database_,
                      "SELECT step, cursor, recorded, rejected, metrics FROM journal WHERE run = ? AND step > ? ORDER BY step LIMIT 1");
  if (!statement.bind(run).bind(after_step).step()) return std::nullopt;
  std::string subject = "journal of run " + std::to_string(run);
  JournalRow row;
  row.step = statement.number(0);
  row.cursor = stored_json(statement.text(1), subject);
  Bytes recorded = statement.blob(2);
  if (recorded.size % 4)
    throw damaged(subject, std::to_string(recorded.size) + " bytes of values at step " + std::to_string(row.step), "4 bytes a value");
  auto* values = reinterpret_cast<uint8_t*>((row.values.resize(recorded.size / 4), row.values.data()));
  for (size_t i = 0; i < recorded.size; i++) values[i] = recorded.data[i];
  row.rejected = statement.number(3) != 0;
  row.metrics = stored_json(statement.text(4), subject);
  return row;
}

std::optional<Slot> StateStore::latest_slot(int64_t run, const std::vector<StateTensor>& expected) {
  FilesLock lock(folder_);
  Statement statement(*database_, "SELECT step, cursor, file, sha256, bytes FROM slots WHERE run = ? ORDER BY id DESC LIMIT 1");
  if (!statement.bind(run).step()) return std::nullopt;
  Slot slot;
  slot.step = statement.number(0);
  slot.cursor = stored_json(statement.text(1), "cursor of run " + std::to_string(run));
  slot.tensors = read_tensor_file(folder_, {statement.text(2), statement.text(3), statement.number(4)}, TensorShapes(expected));
  return slot;
}

void StateStore::each_metrics(int64_t run, bool last_first, const std::function<bool(const std::string& json)>& look) {
  const char* order = last_first ? " ORDER BY s DESC, kind DESC, n DESC" : " ORDER BY s, kind, n";
  Statement statement(*database_, std::string("SELECT metrics, step AS s, 0 AS kind, 0 AS n FROM journal WHERE run = ? "
                                              "UNION ALL SELECT json, step, 1, id FROM metrics WHERE run = ?") +
                                      order);
  statement.bind(run).bind(run);
  while (statement.step()) {
    std::string json = stored_json(statement.text(0), "metrics of run " + std::to_string(run));
    if (json != "{}" && !look(json)) return;
  }
}

}  // namespace bespoke
