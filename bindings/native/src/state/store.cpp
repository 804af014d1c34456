// SPDX-License-Identifier: Apache-2.0
// Opening a state, and the user's examples as training reads them.
#include "state/store.h"

#include <cstring>

#include "state/database.h"
#include "state/errors.h"
#include "state/folder.h"
#include "state/lock.h"
#include "state/notes.h"
#include "state/reserve.h"
#include "state/tables.h"
#include "state/tensor_files.h"

namespace bespoke {

namespace {

std::vector<RowPlace> places(Statement& statement, const std::string& subject) {
  std::vector<RowPlace> found;
  while (statement.step()) {
    if (!statement.maybe_number(2)) throw damaged(subject, "an example without token rows", "those it was added with");
    int64_t length = statement.number(2);
    if (length <= 0 || static_cast<size_t>(length) > Database::kMostValueBytes / 4)
      throw damaged(subject, std::to_string(length) + " tokens of an example", "those it was added with");
    const int64_t rejected = statement.maybe_number(3).value_or(0);
    if (rejected < 0 || static_cast<size_t>(rejected) > Database::kMostValueBytes / 4)
      throw damaged(subject, std::to_string(rejected) + " tokens of a rejected answer", "those it was added with");
    found.push_back(
        {statement.number(0), static_cast<int32_t>(statement.number(1)), static_cast<int32_t>(length), static_cast<int32_t>(rejected)});
  }
  return found;
}

// Tokens and mask of a row; false where it has gone.
bool read_tokens(Statement& statement, int32_t listed, const std::string& subject, int32_t* tokens, uint8_t* mask) {
  if (!statement.step()) return false;
  const auto length = static_cast<size_t>(listed);
  Bytes found = statement.blob(0);
  if (found.size != 4 * length)
    throw damaged(subject, std::to_string(found.size) + " bytes of tokens", std::to_string(4 * length) + ", as listed");
  memcpy(tokens, found.data, found.size);  // little-endian, as every machine that this is built for
  found = statement.blob(1);
  if (found.size != length) throw damaged(subject, std::to_string(found.size) + " bytes of mask", std::to_string(length) + ", as listed");
  memcpy(mask, found.data, found.size);
  return true;
}

}  // namespace

std::string name_of(Split split) { return split == Split::train ? "train" : "validation"; }

StateStore::StateStore(std::string folder, std::string base_sha256, std::unique_ptr<Database> database,
                       std::unique_ptr<TensorShapes> shapes)
    : folder_(std::move(folder)), base_sha256_(std::move(base_sha256)), database_(std::move(database)), shapes_(std::move(shapes)) {}

StateStore::~StateStore() = default;

std::unique_ptr<StateStore> StateStore::open(const std::string& path, const std::string& base_sha256,
                                             const std::vector<StateTensor>& adapter, bool any_base) {
  std::string folder = path;
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  auto shapes = std::make_unique<TensorShapes>(adapter);
  folder = prepare_folder(folder);
  FilesLock lock(folder);
  auto database = with_reserve(folder, [&] {
    bool may_be_new = !made_before(folder);
    auto opened = std::make_unique<Database>(folder);
    opened->prepare(base_sha256, *shapes, may_be_new, any_base);
    mark_created(folder);
    return opened;
  });
  std::unique_ptr<StateStore> store(new StateStore(folder, base_sha256, std::move(database), std::move(shapes)));
  store->sweep(true);
  store->database_->empty_log();
  erase_scratch(folder);
  keep_reserve(folder);
  return store;
}

std::unique_ptr<TrainerLock> StateStore::trainer_lock(const std::string& purpose) {
  return std::make_unique<TrainerLock>(folder_, purpose);
}

void StateStore::check_base_again() { check_base(*database_, base_sha256_, shapes_->json()); }

std::string StateStore::scratch_path() const { return folder_ + "/" + kScratchFile; }

void StateStore::sweep(bool overwrite) {
  std::vector<std::string> named;
  {
    Statement statement(*database_,
                        "SELECT file FROM slots UNION SELECT file FROM best_steps UNION SELECT file FROM versions "
                        "UNION SELECT file FROM federations WHERE file IS NOT NULL");
    while (statement.step()) named.push_back(statement.text(0));
  }
  sweep_tensor_files(folder_, named, overwrite);
}

// ---- examples ------------------------------------------------------------------------------------------------------------

int64_t StateStore::example_count(std::optional<Split> split) {
  if (!split) return database_->number("SELECT count(*) FROM examples");
  std::string name = name_of(*split);
  Statement statement(*database_, "SELECT count(*) FROM examples WHERE split = ?");
  return statement.bind(name).step() ? statement.number(0) : 0;
}

std::vector<RowPlace> StateStore::rows(Split split) {
  std::string name = name_of(split);
  Statement statement(*database_,
                      "SELECT key, row, length(r.mask), length(r.rejected_mask) FROM examples LEFT JOIN example_rows r ON example = key "
                      "WHERE split = ? ORDER BY key, row");
  return places(statement.bind(name), database_->subject());
}

std::vector<RowPlace> StateStore::rows(int64_t run, Split split) {
  std::string name = name_of(split);
  Statement statement(*database_,
                      "SELECT key, row, length(r.mask), length(r.rejected_mask) FROM run_examples u JOIN examples ON key = u.example "
                      "LEFT JOIN example_rows r ON r.example = key WHERE u.run = ? AND split = ? ORDER BY position, row");
  return places(statement.bind(run).bind(name), database_->subject());
}

bool StateStore::read_row(const RowPlace& row, int32_t* tokens, uint8_t* mask) {
  Statement statement(*database_, "SELECT tokens, mask FROM example_rows WHERE example = ? AND row = ?");
  return read_tokens(statement.bind(row.example).bind(int64_t{row.window}), row.length, database_->subject(), tokens, mask);
}

bool StateStore::read_rejected(const RowPlace& row, int32_t* tokens, uint8_t* mask) {
  Statement statement(*database_, "SELECT rejected_tokens, rejected_mask FROM example_rows WHERE example = ? AND row = ?");
  return read_tokens(statement.bind(row.example).bind(int64_t{row.window}), row.rejected_length, database_->subject(), tokens, mask);
}

}  // namespace bespoke
