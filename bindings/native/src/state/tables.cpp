// SPDX-License-Identifier: Apache-2.0
#include "state/tables.h"

#include <sqlite3.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <set>

#include "state/database.h"
#include "state/errors.h"
#include "state/stored_text.h"

namespace bespoke {

namespace {

constexpr int64_t kApplicationId = 0x62737001;  // marks the file as ours, in SQLite's header

// What brings a database from the version before to each version, from none to 1 on. A new database takes all of them, an older one
// those that it lacks, so both have the same texts in sqlite_schema. A step that is in use anywhere is never changed.
constexpr std::string_view kSteps[] = {R"(
CREATE TABLE state (
  one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL, base_sha256 TEXT NOT NULL, adapter TEXT NOT NULL
) STRICT;
CREATE TABLE examples (
  key INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
  split TEXT NOT NULL CHECK (split IN ('train', 'validation')), json TEXT NOT NULL,
  tokens INTEGER NOT NULL CHECK (tokens > 0), trained_tokens INTEGER NOT NULL CHECK (trained_tokens > 0),
  added_at TEXT NOT NULL
) STRICT;
CREATE TABLE example_rows (
  example INTEGER NOT NULL REFERENCES examples (key) ON DELETE CASCADE, row INTEGER NOT NULL CHECK (row >= 0),
  tokens BLOB NOT NULL, mask BLOB NOT NULL CHECK (length(tokens) = 4 * length(mask)),
  PRIMARY KEY (example, row)
) STRICT, WITHOUT ROWID;
CREATE TABLE runs (
  id INTEGER PRIMARY KEY AUTOINCREMENT, method TEXT NOT NULL, seed INTEGER NOT NULL, settings TEXT NOT NULL,
  steps INTEGER NOT NULL CHECK (steps >= 0), started_from INTEGER, parent INTEGER,
  step INTEGER NOT NULL CHECK (step >= 0), cursor TEXT NOT NULL, ended_because TEXT,
  started_at TEXT NOT NULL, ended_at TEXT
) STRICT;
CREATE TABLE run_examples (
  run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE, position INTEGER NOT NULL,
  example INTEGER NOT NULL REFERENCES examples (key) ON DELETE CASCADE,
  PRIMARY KEY (run, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX run_examples_by_example ON run_examples (example);
CREATE TABLE slots (
  id INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  step INTEGER NOT NULL CHECK (step >= 0), cursor TEXT NOT NULL,
  file TEXT NOT NULL UNIQUE, sha256 TEXT NOT NULL, bytes INTEGER NOT NULL CHECK (bytes >= 0)
) STRICT;
CREATE TABLE journal (
  run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE, step INTEGER NOT NULL CHECK (step >= 0),
  cursor TEXT NOT NULL, recorded BLOB NOT NULL CHECK (length(recorded) % 4 = 0),
  rejected INTEGER NOT NULL CHECK (rejected IN (0, 1)), metrics TEXT NOT NULL,
  PRIMARY KEY (run, step)
) STRICT, WITHOUT ROWID;
CREATE TABLE metrics (
  id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  step INTEGER NOT NULL, json TEXT NOT NULL
) STRICT;
CREATE INDEX metrics_by_run ON metrics (run, step);
CREATE TABLE versions (
  id INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER, step INTEGER NOT NULL, metrics TEXT NOT NULL, source TEXT,
  file TEXT NOT NULL UNIQUE, sha256 TEXT NOT NULL, bytes INTEGER NOT NULL CHECK (bytes >= 0), accepted_at TEXT NOT NULL
) STRICT;
)",
                                       R"(
ALTER TABLE state ADD COLUMN text TEXT;
ALTER TABLE examples ADD COLUMN use TEXT NOT NULL DEFAULT '' CHECK (use IN ('', 'train'));
ALTER TABLE example_rows ADD COLUMN rejected_tokens BLOB;
ALTER TABLE example_rows ADD COLUMN rejected_mask BLOB CHECK (length(rejected_tokens) = 4 * length(rejected_mask));
CREATE TABLE losses (
  version INTEGER NOT NULL, rows TEXT NOT NULL, loss REAL NOT NULL,
  PRIMARY KEY (version, rows)
) STRICT, WITHOUT ROWID;
)",
                                       R"(
CREATE TABLE judgements (
  run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE, step INTEGER NOT NULL CHECK (step > 0), loss REAL NOT NULL,
  PRIMARY KEY (run, step)
) STRICT, WITHOUT ROWID;
CREATE TABLE best_steps (
  run INTEGER PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE, step INTEGER NOT NULL CHECK (step > 0),
  file TEXT NOT NULL UNIQUE, sha256 TEXT NOT NULL, bytes INTEGER NOT NULL CHECK (bytes >= 0)
) STRICT;
)",
                                       R"(
ALTER TABLE runs ADD COLUMN bytes_written INTEGER NOT NULL DEFAULT 0 CHECK (bytes_written >= 0);
ALTER TABLE versions ADD COLUMN text_rules TEXT;
)",
                                       R"(
CREATE TABLE answers (
  run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE, step INTEGER NOT NULL CHECK (step > 0),
  prompt TEXT NOT NULL, tokens BLOB NOT NULL CHECK (length(tokens) % 4 = 0),
  PRIMARY KEY (run, step, prompt)
) STRICT, WITHOUT ROWID;
)",
                                       R"(
CREATE TABLE federations (
  task TEXT NOT NULL PRIMARY KEY, joined_at TEXT, spent REAL NOT NULL CHECK (spent >= 0), round INTEGER NOT NULL CHECK (round >= 0),
  differs INTEGER NOT NULL CHECK (differs IN (0, 1)), adapter TEXT, file TEXT UNIQUE, sha256 TEXT, bytes INTEGER,
  document TEXT, done INTEGER NOT NULL CHECK (done IN (0, 1)), wait_seconds REAL NOT NULL CHECK (wait_seconds >= 0), heard_at INTEGER NOT NULL,
  CHECK ((round = 0) = (file IS NULL) AND (file IS NULL) = (adapter IS NULL) AND (file IS NULL) = (sha256 IS NULL)
    AND (file IS NULL) = (bytes IS NULL))
) STRICT, WITHOUT ROWID;
CREATE TABLE rounds (
  task TEXT NOT NULL REFERENCES federations (task) ON DELETE CASCADE, round INTEGER NOT NULL CHECK (round > 0), measured_at TEXT NOT NULL,
  PRIMARY KEY (task, round)
) STRICT, WITHOUT ROWID;
CREATE TABLE outbox (
  task TEXT NOT NULL, round INTEGER NOT NULL, numbers TEXT NOT NULL, PRIMARY KEY (task, round),
  FOREIGN KEY (task, round) REFERENCES rounds (task, round) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
CREATE TABLE round_examples (
  task TEXT NOT NULL, round INTEGER NOT NULL, example INTEGER NOT NULL REFERENCES examples (key) ON DELETE CASCADE,
  PRIMARY KEY (task, round, example), FOREIGN KEY (task, round) REFERENCES rounds (task, round) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
CREATE INDEX round_examples_by_example ON round_examples (example);
)"};
constexpr int64_t kVersion = std::size(kSteps);

std::set<std::string> objects(Database& database) {
  std::set<std::string> found;
  Statement statement(database, "SELECT type, name, tbl_name, sql FROM sqlite_schema");
  while (statement.step()) {
    std::string object;
    for (int column = 0; column < 4; column++) object += statement.maybe_text(column).value_or("\1") + '\0';
    found.insert(object);
  }
  return found;
}

void take_steps(Database& database, int64_t from, int64_t to) {
  for (int64_t version = from; version < to; version++) {
    const std::string_view step = kSteps[version];
    for (size_t start = 0; start < step.size();) {
      const size_t end = std::min(step.find(';', start), step.size());
      const size_t first = step.find_first_not_of(" \n", start);
      if (first < end) database.execute(std::string(step.substr(first, end - first)));
      start = end + 1;
    }
  }
  database.execute("PRAGMA user_version = " + std::to_string(to));
}

std::set<std::string> objects_of_version(int64_t version) {
  Database model = Database::in_memory("the tables of this version");
  model.execute("PRAGMA page_size = 512");  // a page for each table and index
  take_steps(model, 0, version);
  return objects(model);
}

std::string hexadecimal(int64_t number) {
  char text[24];
  snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(number));
  return text;
}

Error other_version(const std::string& subject, const std::string& version) {
  return Error(Kind::State, subject, "a state of version " + version, "version 1 to " + std::to_string(kVersion),
               "Use the version of bespoke that wrote it, or a newer one, or delete the folder and add the examples again");
}

}  // namespace

// ---- shapes --------------------------------------------------------------------------------------------------------------

TensorShapes::TensorShapes(const std::vector<StateTensor>& tensors) {
  std::vector<const StateTensor*> sorted;
  for (const StateTensor& tensor : tensors) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(), [](auto* a, auto* b) { return a->name < b->name; });
  for (const StateTensor* tensor : sorted) {
    Piece piece{static_cast<uint32_t>(names_.size()), static_cast<uint32_t>(tensor->name.size()), static_cast<uint32_t>(extents_.size()),
                tensor->rank};
    names_ += tensor->name;
    extents_.insert(extents_.end(), tensor->shape, tensor->shape + tensor->rank);
    pieces_.push_back(piece);
  }
  names_.shrink_to_fit(), extents_.shrink_to_fit(), pieces_.shrink_to_fit();
}

StateTensor TensorShapes::piece(size_t index) const {
  const Piece& piece = pieces_[index];
  return {std::string_view(names_).substr(piece.name, piece.name_size), extents_.data() + piece.shape, piece.rank, nullptr};
}

int64_t TensorShapes::find(std::string_view name) const {
  size_t low = 0, high = pieces_.size();
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (piece(middle).name < name)
      low = middle + 1;
    else
      high = middle;
  }
  return low < pieces_.size() && piece(low).name == name ? static_cast<int64_t>(low) : -1;
}

bool TensorShapes::owns(std::string_view state) const {
  const size_t dot = state.rfind('.');
  return dot != std::string_view::npos && dot + 1 < state.size() && find(state.substr(0, dot)) >= 0;
}

bool TensorShapes::has_shape_of(size_t index, const StateTensor& tensor) const {
  StateTensor own = piece(index);
  return own.rank == tensor.rank && std::equal(own.shape, own.shape + own.rank, tensor.shape);
}

std::string TensorShapes::json() const {
  std::string text = "{";
  for (size_t i = 0; i < size(); i++) {
    StateTensor tensor = piece(i);
    text += (i ? ", " : "") + json_text(tensor.name) + ": [";
    for (int32_t j = 0; j < tensor.rank; j++) text += (j ? ", " : "") + std::to_string(tensor.shape[j]);
    text += ']';
  }
  return text + "}";
}

// ---- tables --------------------------------------------------------------------------------------------------------------

void create_schema(Database& database, const std::string& base_sha256, const std::string& shapes_json) {
  take_steps(database, 0, kVersion);
  database.execute("PRAGMA application_id = " + std::to_string(kApplicationId));
  Statement(database, "INSERT INTO state (one, version, base_sha256, adapter) VALUES (1, ?, ?, ?)")
      .bind(kVersion)
      .bind(base_sha256)
      .bind(shapes_json)
      .run();
}

void migrate_schema(Database& database) {
  const int64_t version = database.number("PRAGMA user_version");
  if (version == kVersion) return;
  Transaction transaction(database);
  take_steps(database, version, kVersion);
  Statement(database, "UPDATE state SET version = ?").bind(kVersion).run();
  transaction.commit();
}

void check_schema(Database& database) {
  const std::string& subject = database.subject();
  int64_t version = database.number("PRAGMA user_version");
  int64_t application = database.number("PRAGMA application_id");
  if (application != kApplicationId)
    throw damaged(subject, "a database of application " + hexadecimal(application), hexadecimal(kApplicationId) + ", bespoke's");
  if (version < 1 || version > kVersion) throw other_version(subject, std::to_string(version));
  if (objects(database) != objects_of_version(version))
    throw damaged(subject, "other tables, indices or triggers", "the tables of version " + std::to_string(version));
  std::string complaints;
  {
    Statement statement(database, "PRAGMA quick_check(3)");
    while (statement.step()) complaints += (complaints.empty() ? "" : "; ") + statement.text(0);
  }
  // SQLite reports a page that could not be read as if it were damaged: the code says which.
  const size_t failed = complaints.find("error code=");
  if (failed != std::string::npos) {
    const int code = std::atoi(complaints.c_str() + failed + strlen("error code=")) & 0xff;
    if (code == SQLITE_NOMEM) throw no_memory(subject);
    if (code != SQLITE_CORRUPT) throw passing(subject, complaints.substr(0, 300));
  }
  if (complaints != "ok") throw damaged(subject, complaints.substr(0, 300));
  Statement statement(database, "SELECT version FROM state");
  std::string stored = statement.step() ? statement.text(0) : "None";
  if (stored != std::to_string(version) || statement.step()) throw other_version(subject, stored);
}

void check_base(Database& database, const std::string& base_sha256, const std::string& shapes_json) {
  Statement statement(database, "SELECT base_sha256, adapter FROM state");
  statement.step();
  std::string base = statement.text(0);
  if (base != base_sha256)
    throw Error(Kind::State, database.subject(), "a state of the base model " + base.substr(0, 16),
                "one of " + base_sha256.substr(0, 16) + ", the bundle's",
                to_call(Verb::reset_for_new_base) + ": examples are kept and tokenized again, adapters go");
  if (statement.text(1) != shapes_json)
    throw Error(Kind::State, database.subject(), "adapters of other names or shapes (another LoRA rank, for instance)",
                "those of the bundle", to_call(Verb::reset_for_new_base) + ": examples are kept, adapters go");
}

}  // namespace bespoke
