// SPDX-License-Identifier: Apache-2.0
// The user's examples: stored tokenized, their split fixed when they are added.
#include "format/hash.h"
#include "format/untrusted_text.h"
#include "state/canonical_json.h"
#include "state/database.h"
#include "state/errors.h"
#include "state/example_rows.h"
#include "state/store.h"
#include "state/stored_text.h"

namespace bespoke {

namespace {

constexpr size_t kMostIdCharacters = 256;
constexpr int64_t kSplitFrom = 5;  // examples: with fewer all are trained on, and the training loss is judged
constexpr int64_t kValidationOneIn = 10;

Split split_named(const std::string& name) { return name == "train" ? Split::train : Split::validation; }

// Split of a new example, the `count`-th (from 1), where `validation` of those before it are for validation.
Split split_of(const std::string& id, int64_t count, int64_t validation) {
  if (count < kSplitFrom) return Split::train;
  int64_t remainder = 0;  // of the hash as one number
  for (char digit : sha256_hex(bytes_of(id)))
    remainder = (16 * remainder + (digit <= '9' ? digit - '0' : digit - 'a' + 10)) % kValidationOneIn;
  return remainder == 0 || validation * kValidationOneIn < count ? Split::validation : Split::train;
}

}  // namespace

void StateStore::check_id(const std::string& id) {
  std::string problem;
  if (first_bad_utf8(id) != std::string::npos) {
    problem = "bytes that are no UTF-8";
  } else {
    const size_t characters = count_characters(id);
    const bool has_nul = id.find('\0') != std::string::npos;
    if (characters < 1 || characters > kMostIdCharacters || has_nul)
      problem = std::to_string(characters) + " characters" + (has_nul ? ", one of them NUL" : "");
  }
  if (!problem.empty())
    throw Error(Kind::Data, "id of an example", problem, "text of 1 to " + std::to_string(kMostIdCharacters) + " characters",
                "Use another id, or none");
}

Identified StateStore::identified(const std::string& json, std::optional<std::string> id) {
  constexpr size_t most_written = 2 * Database::kMostValueBytes;  // with spaces and escapes that the canonical text has not
  const auto check_size = [](size_t bytes, size_t most) {
    if (bytes > most)
      throw Error(Kind::Data, "example", std::to_string(bytes) + " bytes of JSON", "at most " + std::to_string(Database::kMostValueBytes),
                  "Cut it into several examples");
  };
  check_size(json.size(), most_written);  // before it is copied and read
  Identified found{canonical_json(json, "example"), ""};
  check_size(found.json.size(), Database::kMostValueBytes);
  found.id = id ? std::move(*id) : sha256_hex({reinterpret_cast<const uint8_t*>(found.json.data()), found.json.size()});
  check_id(found.id);
  return found;
}

AddedExample StateStore::add_example(const Identified& example, const std::vector<TokenRow>& rows, Use use) {
  return add_examples({{&example, &rows, use}}).front();
}

std::vector<AddedExample> StateStore::add_examples(const std::vector<NewExample>& examples) {
  for (const NewExample& added : examples) check_rows(*added.rows, added.example->id);
  Transaction transaction(*database_);
  ExampleCounts counts = counted();
  counts_.reset();  // until it is committed
  std::vector<AddedExample> answers;
  for (const NewExample& added : examples) answers.push_back(add_within(added, counts));
  transaction.commit();
  counts_ = counts;
  return answers;
}

AddedExample StateStore::add_within(const NewExample& added, ExampleCounts& counts) {
  const Identified& example = *added.example;
  {
    Statement statement(*database_, "SELECT split, json FROM examples WHERE id = ?");
    if (statement.bind(example.id).step()) {
      if (statement.text(1) != example.json)
        throw Error(Kind::Data, "example '" + example.id + "'", "other content than the example stored under this id",
                    "the same content, or an id of its own",
                    to_call(Verb::forget, "id") + " first to replace it, or add it under another id");
      return {example.id, split_named(statement.text(0)), false};
    }
  }
  if (text_rules_ && stored_text_rules() != text_rules_)
    throw Error(Kind::State, folder_, "rows of other text rules: the state was opened with another bundle meanwhile",
                "those of this bundle", "Open the model again, with the bundle that is to be used");
  const Split split = added.use == Use::train ? Split::train : split_of(example.id, counts.examples + 1, counts.validation);
  const TokenCounts tokens = counts_of(*added.rows);
  const std::string split_name = name_of(split), use_name = added.use == Use::train ? "train" : "", added_at = now();
  Statement(*database_, "INSERT INTO examples (id, split, json, tokens, trained_tokens, added_at, use) VALUES (?, ?, ?, ?, ?, ?, ?)")
      .bind(example.id)
      .bind(split_name)
      .bind(example.json)
      .bind(tokens.tokens)
      .bind(tokens.trained)
      .bind(added_at)
      .bind(use_name)
      .run();
  insert_rows(*database_, database_->last_id(), *added.rows);
  counts.examples++;
  counts.validation += split == Split::validation;
  return {example.id, split, true};
}

// Counted again only if another connection wrote meanwhile: otherwise each `add_example` would read all examples before it.
StateStore::ExampleCounts StateStore::counted() {
  const int64_t data_version = database_->number("PRAGMA data_version");
  if (counts_ && counts_->data_version == data_version) return *counts_;
  Statement statement(*database_, "SELECT count(*), count(*) FILTER (WHERE split = 'validation') FROM examples");
  statement.step();
  return {data_version, statement.number(0), statement.number(1)};
}

std::vector<ExampleInfo> StateStore::examples(const std::string& after, int64_t most) {
  std::vector<ExampleInfo> found;
  int64_t from = 0;  // keys begin at 1
  if (!after.empty()) {
    Statement statement(*database_, "SELECT key FROM examples WHERE id = ?");
    if (!statement.bind(after).step())
      throw Error(Kind::Data, "after", "'" + after + "', which no example has", "the id of an example, or an empty text",
                  "Begin again from the first page: it may have been forgotten meanwhile");
    from = statement.number(0);
  }
  Statement statement(*database_,
                      "SELECT id, split, json, tokens, trained_tokens, (SELECT count(*) FROM example_rows WHERE example = key), added_at "
                      "FROM examples WHERE key > ? ORDER BY key LIMIT ?");
  statement.bind(from).bind(most > 0 ? most : int64_t{-1});
  while (statement.step()) {
    found.push_back({statement.text(0), split_named(statement.text(1)), statement.text(2), statement.number(3), statement.number(4),
                     statement.number(5), statement.text(6)});
    if (!is_json_object(found.back().json))
      throw damaged("example '" + found.back().id + "'", "text that is no JSON object", "a JSON object");
  }
  return found;
}

std::vector<std::string> StateStore::run_example_ids(int64_t run) {
  std::vector<std::string> found;
  Statement statement(*database_, "SELECT id FROM run_examples u JOIN examples ON key = u.example WHERE u.run = ? ORDER BY position");
  statement.bind(run);
  while (statement.step()) found.push_back(statement.text(0));
  return found;
}

}  // namespace bespoke
