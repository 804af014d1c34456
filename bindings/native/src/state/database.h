// SPDX-License-Identifier: Apache-2.0
// The connection to state.sqlite: its settings, its transactions, its statements, its errors. One per store.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "bytes.h"
#include "this_call.h"

struct sqlite3;
struct sqlite3_stmt;

namespace bespoke {

class TensorShapes;
class Database;
class OpenFile;

class Statement {  // one SQL statement; texts and blobs that are bound must outlive it
 public:
  Statement(Database& database, const std::string& sql);
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& bind(int64_t number);  // the next parameter
  Statement& bind(std::optional<int64_t> number);
  Statement& bind(double number);
  Statement& bind(const std::string& text);
  Statement& bind(const std::optional<std::string>& text);
  Statement& bind(Bytes blob);
  bool step();   // whether there is a row
  void run();    // to its end
  void again();  // the same statement with other parameters

  int64_t number(int column) const;
  std::optional<int64_t> maybe_number(int column) const;
  double real(int column) const;
  std::string text(int column) const;
  std::optional<std::string> maybe_text(int column) const;
  Bytes blob(int column) const;  // until the next step

 private:
  void check(int code);
  Database& database_;
  sqlite3_stmt* statement_ = nullptr;
  int parameter_ = 0;
};

class Database {
 public:
  static constexpr size_t kMostValueBytes = size_t{16} << 20;  // of one text or blob

  explicit Database(const std::string& folder);  // a path without links; refuses links in the place of its files
  Database(const std::string& subject, sqlite3* connection);
  static Database in_memory(const std::string& subject);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // Creates the tables of a new database, checks those of an old one: `any_base` whichever base and adapter it belongs to. The caller
  // holds the lock on files.
  void prepare(const std::string& base_sha256, const TensorShapes& shapes, bool may_be_new, bool any_base);
  void execute(const std::string& sql);
  int64_t number(const std::string& sql);  // of the first row
  int64_t last_id() const;
  int64_t changed() const;  // rows, by the last statement
  void empty_log();         // moves the write-ahead log into the database; where others use it, later
  void empty_log_now();     // Unavailable where another process keeps the log in use

  const std::string& subject() const { return subject_; }
  sqlite3* connection() const { return connection_; }

 private:
  void make_durable();
  std::string subject_;
  std::unique_ptr<OpenFile> open_file_;  // none: a database in memory
  sqlite3* connection_ = nullptr;
  CallSettings::Clock::time_point busy_since_;  // when it began to wait for another process
};

class Transaction {  // all or nothing: rolled back unless committed
 public:
  enum Mode { writes, reads };
  explicit Transaction(Database& database, Mode mode = writes);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();  // on disk when this returns

 private:
  Database& database_;
};

}  // namespace bespoke
