// SPDX-License-Identifier: Apache-2.0
#include "state/federation.h"

#include <ctime>

#include "state/database.h"
#include "state/errors.h"
#include "state/lock.h"
#include "state/scrub.h"
#include "state/store.h"
#include "state/stored_text.h"
#include "state/tensor_files.h"
#include "state/undone.h"

namespace bespoke {

namespace {

bool is_joined(Database& database, const std::string& task) {
  return Statement(database, "SELECT 1 FROM federations WHERE task = ? AND joined_at IS NOT NULL").bind(task).step();
}

bool all_there(Database& database, const std::vector<int64_t>& examples) {
  for (const int64_t example : examples)
    if (!Statement(database, "SELECT 1 FROM examples WHERE key = ?").bind(example).step()) return false;
  return true;
}

// The number goes into the outbox with what it has cost, or not at all.
void keep_numbers(Database& database, const std::string& task, const RoundNumbers& measured) {
  if (!all_there(database, measured.examples)) return;
  const std::string measured_at = now();
  Statement(database, "INSERT INTO rounds (task, round, measured_at) VALUES (?, ?, ?)")
      .bind(task)
      .bind(measured.round)
      .bind(measured_at)
      .run();
  Statement(database, "INSERT INTO outbox (task, round, numbers) VALUES (?, ?, ?)")
      .bind(task)
      .bind(measured.round)
      .bind(measured.numbers)
      .run();
  Statement(database, "UPDATE federations SET spent = spent + ?, wait_seconds = 0 WHERE task = ?").bind(measured.cost).bind(task).run();
  for (const int64_t example : measured.examples)
    Statement(database, "INSERT OR IGNORE INTO round_examples (task, round, example) VALUES (?, ?, ?)")
        .bind(task)
        .bind(measured.round)
        .bind(example)
        .run();
}

}  // namespace

std::optional<Federation> StateStore::federation(const std::string& task) {
  Statement statement(*database_,
                      "SELECT joined_at IS NOT NULL, round, differs, adapter, spent, document, done, wait_seconds, heard_at, "
                      "(SELECT count(*) FROM rounds r WHERE r.task = f.task), (SELECT count(*) FROM outbox o WHERE o.task = f.task) "
                      "FROM federations f WHERE task = ?");
  if (!statement.bind(task).step()) return std::nullopt;
  Federation found;
  found.joined = statement.number(0) != 0;
  found.round = statement.number(1);
  found.differs = statement.number(2) != 0;
  found.adapter = statement.maybe_text(3).value_or("");
  found.spent = statement.real(4);
  found.document = statement.maybe_text(5);
  found.done = statement.number(6) != 0;
  found.wait_seconds = statement.real(7);
  found.heard_at = statement.number(8);
  found.rounds_sent = statement.number(9);
  found.pending = statement.number(10);
  return found;
}

void StateStore::join_federation(const std::string& task) {
  const std::string joined_at = now();
  Statement(
      *database_,
      "INSERT INTO federations (task, joined_at, spent, round, differs, done, wait_seconds, heard_at) VALUES (?, ?, 0, 0, 0, 0, 0, 0) "
      "ON CONFLICT (task) DO UPDATE SET joined_at = coalesce(joined_at, excluded.joined_at)")
      .bind(task)
      .bind(joined_at)
      .run();
}

void StateStore::leave_federation(const std::string& task) {
  FilesLock lock(folder_);
  {
    Transaction transaction(*database_);
    Statement(*database_, "DELETE FROM outbox WHERE task = ?").bind(task).run();
    Statement(*database_,
              "UPDATE federations SET joined_at = NULL, round = 0, differs = 0, adapter = NULL, file = NULL, sha256 = NULL, bytes = NULL, "
              "document = NULL, done = 0, wait_seconds = 0 WHERE task = ?")
        .bind(task)
        .run();
    zero_free_space(*database_);
    transaction.commit();
  }
  sweep(true);
  database_->empty_log_now();
}

bool StateStore::keep_document(const std::string& task, const std::optional<std::string>& document, const std::vector<int64_t>& taken,
                               bool done, double wait_seconds) {
  Transaction transaction(*database_);
  if (!is_joined(*database_, task)) return false;
  for (const int64_t round : taken) Statement(*database_, "DELETE FROM outbox WHERE task = ? AND round = ?").bind(task).bind(round).run();
  Statement(*database_, "UPDATE federations SET document = ?, done = ?, wait_seconds = ?, heard_at = ? WHERE task = ?")
      .bind(document)
      .bind(int64_t{done})
      .bind(wait_seconds)
      .bind(static_cast<int64_t>(std::time(nullptr)))
      .bind(task)
      .run();
  transaction.commit();
  return true;
}

void StateStore::drop_document(const std::string& task, const std::string& document) {
  Statement(*database_, "UPDATE federations SET document = NULL WHERE task = ? AND document = ?").bind(task).bind(document).run();
}

void StateStore::refuse_document(const std::string& task, const std::string& document) {
  Statement(*database_, "UPDATE federations SET document = NULL, done = 0 WHERE task = ? AND document = ?").bind(task).bind(document).run();
}

bool StateStore::commit_rounds(const std::string& task, const FollowedRounds& followed, const std::vector<StateTensor>* adapter,
                               const RoundNumbers* measured) {
  FilesLock lock(folder_);
  check_base_again();
  std::optional<TensorFile> record;
  if (adapter) {
    check_tensors(*adapter, *shapes_, false);
    record = write_tensors(folder_, kSharedKind, followed.round, *adapter);
  }
  bool kept = false;
  const auto keep = [&] {
    Transaction transaction(*database_);
    Statement statement(*database_, "SELECT 1 FROM federations WHERE task = ? AND joined_at IS NOT NULL AND round = ?");
    kept = statement.bind(task).bind(followed.from).step();
    if (!kept) return;
    if (record)
      Statement(*database_, "UPDATE federations SET round = ?, adapter = ?, file = ?, sha256 = ?, bytes = ? WHERE task = ?")
          .bind(followed.round)
          .bind(followed.adapter)
          .bind(record->file)
          .bind(record->sha256)
          .bind(record->bytes)
          .bind(task)
          .run();
    Statement(*database_, "UPDATE federations SET differs = ? WHERE task = ?").bind(int64_t{followed.differs}).bind(task).run();
    if (measured) keep_numbers(*database_, task, *measured);
    transaction.commit();
  };
  undone_when_full(folder_, record, keep);
  sweep();
  return kept;
}

std::optional<MappedTensors> StateStore::shared_adapter(const std::string& task) {
  FilesLock lock(folder_);
  check_base_again();
  Statement statement(*database_, "SELECT file, sha256, bytes FROM federations WHERE task = ? AND file IS NOT NULL");
  if (!statement.bind(task).step()) return std::nullopt;
  return read_tensor_file(folder_, {statement.text(0), statement.text(1), statement.number(2)}, *shapes_);
}

std::vector<RoundNumbers> StateStore::outbox(const std::string& task) {
  std::vector<RoundNumbers> found;
  Statement statement(*database_, "SELECT round, numbers FROM outbox WHERE task = ? ORDER BY round");
  statement.bind(task);
  while (statement.step()) found.push_back({statement.number(0), statement.text(1), 0, {}});
  return found;
}

bool StateStore::has_measured(const std::string& task, int64_t round) {
  return Statement(*database_, "SELECT 1 FROM rounds WHERE task = ? AND round = ?").bind(task).bind(round).step();
}

}  // namespace bespoke
