// SPDX-License-Identifier: Apache-2.0
#include "state/database.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include <cerrno>
#include <thread>

#include "platform/descriptor.h"
#include "state/errors.h"
#include "state/folder.h"
#include "state/open_files.h"
#include "state/tables.h"

namespace bespoke {

namespace {

constexpr int kLeastSqlite = 3037000;  // STRICT tables

// Makes the file, with its own permissions, where there is none; refuses links, folders and devices in its place and its log's. Under
// the lock on files. What is there is looked at by name and never opened here: closing any descriptor of a file drops all POSIX locks
// that the process has on it (SQLite, "How To Corrupt", 2.2), those of its other connections too; another process then takes itself
// for the last one and deletes the log that they write to. A file that O_EXCL made has no connection yet.
void make_file(const std::string& path) {
  for (const char* suffix : {"-wal", "-shm", "-journal", ""}) {
    struct stat found{};
    if (lstat((path + suffix).c_str(), &found) != 0) {
      if (errno == ENOENT) continue;
      throw from_errno(errno, path);
    }
    if (!S_ISREG(found.st_mode)) throw damaged(path + suffix, "a link or something else that is no file", "a plain file");
    if (!*suffix) return;
  }
  Descriptor made(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (made.get() < 0) throw from_errno(errno, path);
}

// SQLite calls it again and again while another process holds what it needs; 0 gives up.
int busy_handler(void* since, int times) {
  constexpr auto poll = std::chrono::milliseconds(5);
  auto& began = *static_cast<CallSettings::Clock::time_point*>(since);
  const auto now = CallSettings::Clock::now();
  if (times == 0) began = now;
  const double most = ThisCall::busy_seconds();
  if (most >= 0 && std::chrono::duration<double>(now - began).count() >= most) return 0;
  try {
    ThisCall::check();
  } catch (const Abandoned&) {
    return 0;  // Statement::check throws it again, on this side of SQLite
  }
  std::this_thread::sleep_for(poll);
  return 1;
}

Error error_of(sqlite3* connection, const std::string& subject) {
  return from_sqlite(sqlite3_extended_errcode(connection), sqlite3_errmsg(connection), subject, sqlite3_system_errno(connection));
}

}  // namespace

// ---- statements ----------------------------------------------------------------------------------------------------------

Statement::Statement(Database& database, const std::string& sql) : database_(database) {
  check(sqlite3_prepare_v2(database.connection(), sql.data(), static_cast<int>(sql.size()), &statement_, nullptr));
}

Statement::~Statement() { sqlite3_finalize(statement_); }

void Statement::check(int code) {
  if (code == SQLITE_OK || code == SQLITE_ROW || code == SQLITE_DONE) return;
  if ((code & 0xff) == SQLITE_BUSY) ThisCall::check();
  throw error_of(database_.connection(), database_.subject());
}

Statement& Statement::bind(int64_t number) {
  check(sqlite3_bind_int64(statement_, ++parameter_, number));
  return *this;
}

Statement& Statement::bind(std::optional<int64_t> number) {
  if (number) return bind(*number);
  check(sqlite3_bind_null(statement_, ++parameter_));
  return *this;
}

Statement& Statement::bind(double number) {
  check(sqlite3_bind_double(statement_, ++parameter_, number));
  return *this;
}

Statement& Statement::bind(const std::string& text) {
  check(sqlite3_bind_text64(statement_, ++parameter_, text.data(), text.size(), SQLITE_STATIC, SQLITE_UTF8));
  return *this;
}

Statement& Statement::bind(const std::optional<std::string>& text) {
  if (text) return bind(*text);
  check(sqlite3_bind_null(statement_, ++parameter_));
  return *this;
}

Statement& Statement::bind(Bytes blob) {
  const void* data = blob.size ? static_cast<const void*>(blob.data) : "";  // a null pointer would be NULL, not an empty blob
  check(sqlite3_bind_blob64(statement_, ++parameter_, data, blob.size, SQLITE_STATIC));
  return *this;
}

bool Statement::step() {
  ThisCall::check();
  int code = sqlite3_step(statement_);
  check(code);
  return code == SQLITE_ROW;
}

void Statement::run() {
  while (step()) continue;
}

void Statement::again() {
  sqlite3_reset(statement_);
  parameter_ = 0;
}

int64_t Statement::number(int column) const { return sqlite3_column_int64(statement_, column); }

std::optional<int64_t> Statement::maybe_number(int column) const {
  if (sqlite3_column_type(statement_, column) == SQLITE_NULL) return std::nullopt;
  return number(column);
}

double Statement::real(int column) const { return sqlite3_column_double(statement_, column); }

std::string Statement::text(int column) const { return maybe_text(column).value_or(""); }

std::optional<std::string> Statement::maybe_text(int column) const {
  const bool is_null = sqlite3_column_type(statement_, column) == SQLITE_NULL;
  auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  if (!text && !is_null) throw no_memory(database_.subject());
  if (!text) return std::nullopt;
  return std::string(text, static_cast<size_t>(sqlite3_column_bytes(statement_, column)));
}

Bytes Statement::blob(int column) const {
  auto* data = static_cast<const uint8_t*>(sqlite3_column_blob(statement_, column));
  if (!data && sqlite3_errcode(database_.connection()) == SQLITE_NOMEM) throw no_memory(database_.subject());
  return {data, static_cast<size_t>(sqlite3_column_bytes(statement_, column))};
}

// ---- the connection ------------------------------------------------------------------------------------------------------

Database::Database(const std::string& folder) : subject_(folder + "/" + kDatabaseFile) {
  if (sqlite3_libversion_number() < kLeastSqlite)
    throw Error(Kind::State, "SQLite", sqlite3_libversion(), "3.37.0 or newer", "Build the core with a newer SQLite");
  make_file(subject_);
  open_file_ = std::make_unique<OpenFile>(subject_);
  // SQLite itself makes nothing and follows no link, in the folder's path neither: the path has none.
  int opened = sqlite3_open_v2(subject_.c_str(), &connection_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW, nullptr);
  if (opened != SQLITE_OK) {
    Error error = connection_ ? error_of(connection_, subject_) : from_sqlite(opened, sqlite3_errstr(opened), subject_);
    sqlite3_close(connection_);
    throw error;
  }
  // Small: a training process counts every page of its own.
  sqlite3_db_config(connection_, SQLITE_DBCONFIG_LOOKASIDE, nullptr, 0, 0);
  sqlite3_busy_handler(connection_, busy_handler, &busy_since_);
  sqlite3_limit(connection_, SQLITE_LIMIT_LENGTH, 2 * static_cast<int>(kMostValueBytes));
}

Database::Database(const std::string& subject, sqlite3* connection) : subject_(subject), connection_(connection) {}

Database Database::in_memory(const std::string& subject) {
  sqlite3* memory = nullptr;
  if (sqlite3_open(":memory:", &memory) != SQLITE_OK) {
    sqlite3_close(memory);
    throw no_memory(subject);
  }
  return Database(subject, memory);
}

Database::~Database() { sqlite3_close(connection_); }

void Database::execute(const std::string& sql) { Statement(*this, sql).run(); }

int64_t Database::number(const std::string& sql) {
  Statement statement(*this, sql);
  return statement.step() ? statement.number(0) : 0;
}

int64_t Database::last_id() const { return sqlite3_last_insert_rowid(connection_); }
int64_t Database::changed() const { return sqlite3_changes(connection_); }

void Database::prepare(const std::string& base_sha256, const TensorShapes& shapes, bool may_be_new, bool any_base) {
  execute("PRAGMA cache_size = -64");  // SQLite's own default is 2 MB
  execute("PRAGMA trusted_schema = OFF");
  execute("PRAGMA cell_size_check = ON");
  execute("PRAGMA foreign_keys = ON");
  execute("PRAGMA temp_store = MEMORY");  // what is deleted must not survive in a temporary file
  bool is_new = number("SELECT count(*) FROM sqlite_schema") == 0;
  if (!(is_new && may_be_new)) check_schema(*this);
  make_durable();
  if (is_new) {
    Transaction transaction(*this);
    create_schema(*this, base_sha256, shapes.json());
    transaction.commit();
  } else {
    if (!any_base) check_base(*this, base_sha256, shapes.json());
    migrate_schema(*this);
  }
}

void Database::make_durable() {
  std::string mode;
  {
    Statement statement(*this, "PRAGMA journal_mode = WAL");
    if (statement.step()) mode = statement.text(0);
  }
  if (mode != "wal")
    throw Error(Kind::State, subject_, "journal mode '" + mode + "'", "'wal'",
                "Put the state folder on a local disk: some network file systems have no shared memory");
  struct {
    const char* name;
    int64_t value;
  } wanted[] = {{"synchronous", 2}, {"secure_delete", 1}};  // 2 is FULL
  for (auto [name, value] : wanted) {
    std::string pragma = std::string("PRAGMA ") + name;
    execute(pragma + " = " + std::to_string(value));
    int64_t got = number(pragma);
    if (got != value)
      throw damaged(subject_, std::string(name) + " " + std::to_string(got), std::string(name) + " " + std::to_string(value));
  }
  // On Apple a plain fsync leaves data in the drive's cache; elsewhere these two mean nothing.
  execute("PRAGMA fullfsync = ON");
  execute("PRAGMA checkpoint_fullfsync = ON");
}

void Database::empty_log() { execute("PRAGMA wal_checkpoint(TRUNCATE)"); }

void Database::empty_log_now() {
  if (number("PRAGMA wal_checkpoint(TRUNCATE)") != 0)
    throw Error(Kind::Unavailable, subject_, "another process that reads the write-ahead log",
                "to empty the log, which still holds what was deleted", "End that process and " + to_call(Verb::forget, "id") + " again");
}

Transaction::Transaction(Database& database, Mode mode) : database_(database) {
  database_.execute(mode == writes ? "BEGIN IMMEDIATE" : "BEGIN");
}

Transaction::~Transaction() {
  if (sqlite3_get_autocommit(database_.connection())) return;
  // Not committed: an error is on its way out, or nothing was to be kept. Where this fails too, SQLite has rolled back itself.
  sqlite3_exec(database_.connection(), "ROLLBACK", nullptr, nullptr, nullptr);
}

void Transaction::commit() { database_.execute("COMMIT"); }

}  // namespace bespoke
