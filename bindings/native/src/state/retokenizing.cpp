// SPDX-License-Identifier: Apache-2.0
// Other tokens for the examples that are stored: a bundle with other text rules, or with another base model.
#include "state/database.h"
#include "state/errors.h"
#include "state/example_rows.h"
#include "state/forgetting.h"
#include "state/lock.h"
#include "state/losses.h"
#include "state/scrub.h"
#include "state/store.h"
#include "state/stored_text.h"
#include "state/tables.h"
#include "this_call.h"

namespace bespoke {

namespace {

constexpr size_t kNamed = 5;  // examples that an error names

struct StoredExample {
  int64_t key;
  std::string id, json;
};

std::vector<int64_t> keys_of(Database& database) {
  std::vector<int64_t> keys;
  Statement statement(database, "SELECT key FROM examples ORDER BY key");
  while (statement.step()) keys.push_back(statement.number(0));
  return keys;
}

StoredExample example_at(Database& database, int64_t key) {
  Statement statement(database, "SELECT id, json FROM examples WHERE key = ?");
  statement.bind(key).step();
  StoredExample example{key, statement.text(0), statement.text(1)};
  if (!is_json_object(example.json)) throw damaged("example '" + example.id + "'", "text that is no JSON object", "a JSON object");
  return example;
}

// Without rows, there is no such example any more.
void replace_rows(Database& database, const StoredExample& example, const std::vector<TokenRow>& rows) {
  if (rows.empty()) {
    Statement(database, "DELETE FROM examples WHERE key = ?").bind(example.key).run();
    return;
  }
  check_rows(rows, example.id);
  Statement(database, "DELETE FROM example_rows WHERE example = ?").bind(example.key).run();
  insert_rows(database, example.key, rows);
  const TokenCounts counts = counts_of(rows);
  Statement(database, "UPDATE examples SET tokens = ?, trained_tokens = ? WHERE key = ?")
      .bind(counts.tokens)
      .bind(counts.trained)
      .bind(example.key)
      .run();
}

Error not_fitting(const std::string& subject, const std::vector<std::string>& problems) {
  std::string got = std::to_string(problems.size()) + " that the bundle cannot take: ";
  for (size_t i = 0; i < problems.size() && i < kNamed; i++) got += (i ? "; " : "") + problems[i];
  return Error(Kind::State, subject, got + (problems.size() > kNamed ? "; ..." : ""),
               "examples that fit the bundle's tokenizer and lengths",
               "Open the state with the bundle that they were added with, and forget them");
}

}  // namespace

std::optional<std::string> StateStore::stored_text_rules() {
  Statement statement(*database_, "SELECT text FROM state");
  return statement.step() ? statement.maybe_text(0) : std::nullopt;
}

void StateStore::use_text_rules(const std::string& rules, const Retokenize& retokenize) {
  text_rules_ = rules;
  for (std::optional<std::string> known; (known = stored_text_rules()) != rules;) {
    std::unique_ptr<TrainerLock> training;
    if (known && example_count() > 0) training = trainer_lock("tokenizing the examples again");
    FilesLock lock(folder_);
    Transaction transaction(*database_);
    if (stored_text_rules() != known) continue;  // another process has changed them meanwhile
    if (known) {
      tokenize_all_again(retokenize);
      Statement(*database_, "UPDATE versions SET text_rules = ? WHERE text_rules IS NULL").bind(*known).run();
    }
    Statement(*database_, "UPDATE state SET text = ?").bind(rules).run();
    transaction.commit();
    const Committed committed;
    sweep(true);
  }
}

void StateStore::tokenize_all_again(const Retokenize& retokenize) {
  std::vector<std::string> problems;
  const std::vector<int64_t> keys = keys_of(*database_);
  int64_t done = 0;
  for (int64_t key : keys) {
    ThisCall::tell(done++, static_cast<int64_t>(keys.size()));
    const StoredExample example = example_at(*database_, key);
    try {
      replace_rows(*database_, example, retokenize(example.json));
    } catch (const Error& error) {
      if (error.kind != Kind::Data) throw;
      problems.push_back("'" + example.id + "' (" + error.got + ")");
    }
  }
  if (!problems.empty()) throw not_fitting(folder_, problems);
  drop_losses(*database_);
  const int64_t unfinished = database_->number("SELECT coalesce(max(id), 0) FROM runs WHERE ended_because IS NULL");
  if (unfinished) end(unfinished, "other_text_rules");  // its cursor counts rows that are gone
}

std::unique_ptr<StateStore> StateStore::reset_for_new_base(const std::string& folder, const std::string& base_sha256,
                                                           const std::vector<StateTensor>& adapter, const std::string& text_rules,
                                                           const Retokenize& retokenize) {
  std::unique_ptr<StateStore> store = open(folder, base_sha256, adapter, true);
  std::unique_ptr<TrainerLock> training = store->trainer_lock("reset for a new base");
  FilesLock lock(store->folder_);
  Database& database = *store->database_;
  {
    Transaction transaction(database);
    forget_all_runs(database);
    const std::vector<int64_t> keys = keys_of(database);
    int64_t done = 0;
    for (int64_t key : keys) {
      ThisCall::tell(done++, static_cast<int64_t>(keys.size()));
      const StoredExample example = example_at(database, key);
      std::vector<TokenRow> rows;
      try {
        rows = retokenize(example.json);
      } catch (const Error& error) {
        if (error.kind != Kind::Data) throw;
        throw Error(Kind::Data, "example '" + example.id + "', " + error.subject, error.got, error.expected,
                    error.next_step + "; or return no rows for it, which drops it");
      }
      replace_rows(database, example, rows);
    }
    const std::string shapes = store->shapes_->json();
    Statement(database, "UPDATE state SET base_sha256 = ?, adapter = ?, text = ?").bind(base_sha256).bind(shapes).bind(text_rules).run();
    zero_free_space(database);
    transaction.commit();
  }
  const Committed committed;
  store->sweep(true);
  database.empty_log_now();
  return store;
}

}  // namespace bespoke
