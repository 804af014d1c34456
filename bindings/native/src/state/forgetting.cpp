// SPDX-License-Identifier: Apache-2.0
// Forgetting: what goes when an example goes, and when everything learned goes.
//
// A run has *seen* an example if it lists it, or started from an adapter whose run has seen it. Whatever such a run left is deleted:
// accepted adapters, slots, the adapter of its best step, and its journal too, since a journal and a seed are the adapter in another form.
//
// The transaction that deletes also zeroes what is left of the deleted rows in the database. Then go the files that it named and the
// write-ahead log. A process that is killed in between leaves them, and the next open removes them.
#include "state/database.h"
#include "state/folder.h"
#include "state/forgetting.h"
#include "state/lock.h"
#include "state/losses.h"
#include "state/notes.h"
#include "state/reserve.h"
#include "state/scrub.h"
#include "state/store.h"
#include "state/stored_text.h"
#include "this_call.h"

namespace bespoke {

namespace {

const char* const kSeen =
    "WITH RECURSIVE seen (run) AS ("
    "  SELECT run FROM run_examples WHERE example = ?"
    "  UNION SELECT runs.id FROM runs JOIN seen ON runs.parent = seen.run"
    ") SELECT run FROM seen";

std::vector<int64_t> numbers(Statement& statement) {
  std::vector<int64_t> found;
  while (statement.step()) found.push_back(statement.number(0));
  return found;
}

// True where the run was unfinished.
bool forget_run(Database& database, int64_t run) {
  for (const char* table : {"slots", "journal", "metrics", "judgements", "best_steps", "answers"})
    Statement(database, std::string("DELETE FROM ") + table + " WHERE run = ?").bind(run).run();
  const bool unfinished = Statement(database, "SELECT 1 FROM runs WHERE id = ? AND ended_because IS NULL").bind(run).step();
  const std::string ended_at = now();
  Statement(database, "UPDATE runs SET ended_because = 'example_forgotten', ended_at = coalesce(ended_at, ?), cursor = '{}' WHERE id = ?")
      .bind(ended_at)
      .bind(run)
      .run();
  return unfinished;
}

// Numbers of rounds that the example had entered. Those that are still to be sent are dropped.
void forget_numbers(Database& database, int64_t example, Forgotten& forgotten) {
  Statement entered(database, "SELECT task, round FROM round_examples WHERE example = ? ORDER BY round");
  entered.bind(example);
  while (entered.step()) {
    const std::string task = entered.text(0);
    forgotten.rounds.push_back(entered.number(1));
    Statement(database, "DELETE FROM outbox WHERE task = ? AND round = ?").bind(task).bind(entered.number(1)).run();
    forgotten.numbers_dropped += database.changed();
  }
}

Forgotten forget_example(Database& database, const std::string& id) {
  Transaction transaction(database);
  std::optional<int64_t> key;
  {
    Statement statement(database, "SELECT key FROM examples WHERE id = ?");
    if (statement.bind(id).step()) key = statement.number(0);
  }
  Forgotten forgotten;
  if (!key) return forgotten;
  forgotten.example = true;
  std::vector<int64_t> seen;
  {
    Statement statement(database, kSeen);
    seen = numbers(statement.bind(*key));
  }
  for (int64_t run : seen) {
    Statement(database, "DELETE FROM versions WHERE run = ?").bind(run).run();
    forgotten.accepted_deleted += database.changed();
    forgotten.run_stopped |= forget_run(database, run);
  }
  forget_numbers(database, *key, forgotten);
  Statement(database, "DELETE FROM examples WHERE key = ?").bind(*key).run();
  drop_losses(database);
  zero_free_space(database);
  transaction.commit();
  return forgotten;
}

}  // namespace

void forget_all_runs(Database& database) {
  database.execute("DELETE FROM versions");
  drop_losses(database);
  database.execute("DELETE FROM runs");  // cascades to slots, journal, metrics, judgements, best steps, answers, lists of examples

  // What was learned together goes too, and what was to be sent. Consent stays, and what has been spent can never be spent again.
  database.execute("DELETE FROM outbox");
  database.execute(
      "UPDATE federations SET round = 0, differs = 0, adapter = NULL, file = NULL, sha256 = NULL, bytes = NULL, document = NULL, "
      "done = 0, wait_seconds = 0");
}

Forgotten StateStore::forget(const std::string& id) {
  check_id(id);
  Forgotten forgotten;
  {
    FilesLock lock(folder_);
    counts_.reset(), notes_.reset();
    forgotten = with_reserve(folder_, [&] { return forget_example(*database_, id); });
    sweep(true);
    database_->empty_log_now();
  }
  erase_scratch(folder_);
  keep_reserve(folder_);
  return forgotten;
}

void StateStore::reset() {
  {
    FilesLock lock(folder_);
    with_reserve(folder_, [&] {
      Transaction transaction(*database_);
      forget_all_runs(*database_);
      zero_free_space(*database_);
      transaction.commit();
    });
    const Committed committed;
    sweep(true);
    database_->empty_log_now();
  }
  const Committed committed;
  erase_scratch(folder_);
  keep_reserve(folder_);
}

}  // namespace bespoke
