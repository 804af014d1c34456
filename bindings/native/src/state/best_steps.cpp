// SPDX-License-Identifier: Apache-2.0
// What steps of a run are worth and the adapter of the best one, and the held-out examples that say so.
#include <algorithm>

#include "format/hash.h"
#include "state/database.h"
#include "state/lock.h"
#include "state/run_bytes.h"
#include "state/store.h"
#include "state/tensor_files.h"
#include "state/undone.h"

namespace bespoke {

namespace {

constexpr size_t kDealtFrom = 4;  // held-out examples: of fewer, all judge

}  // namespace

// In the order of the sha256 of their ids: the first, the third and so on judge what the run has learned, the others choose its best
// step. So neither is by chance without any.
HeldOut StateStore::held_out(int64_t run) {
  std::vector<std::pair<std::string, int64_t>> examples;
  {
    Statement statement(*database_,
                        "SELECT id, key FROM run_examples u JOIN examples ON key = u.example WHERE u.run = ? AND split = 'validation'");
    statement.bind(run);
    while (statement.step()) examples.emplace_back(sha256_hex(bytes_of(statement.text(0))), statement.number(1));
  }
  std::sort(examples.begin(), examples.end());
  std::vector<int64_t> chosen;  // in the order in which they were dealt
  if (examples.size() >= kDealtFrom)
    for (size_t place = 1; place < examples.size(); place += 2) chosen.push_back(examples[place].second);
  HeldOut dealt;
  std::vector<std::pair<size_t, RowPlace>> choosing;
  for (const RowPlace& row : rows(run, Split::validation)) {
    const auto place = std::find(chosen.begin(), chosen.end(), row.example);
    if (place == chosen.end())
      dealt.judging.push_back(row);
    else
      choosing.emplace_back(place - chosen.begin(), row);
  }
  std::stable_sort(choosing.begin(), choosing.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& entry : choosing) dealt.choosing.push_back(entry.second);
  return dealt;
}

std::vector<JudgedStep> StateStore::judged_steps(int64_t run) {
  std::vector<JudgedStep> found;
  Statement statement(*database_, "SELECT step, loss FROM judgements WHERE run = ? ORDER BY step");
  statement.bind(run);
  while (statement.step()) found.push_back({statement.number(0), statement.real(1)});
  return found;
}

bool StateStore::keep_judged_step(int64_t run, const JudgedStep& judged, const std::vector<StateTensor>* best) {
  return keep_step(run, judged.step, judged.loss, best);
}

bool StateStore::keep_only_step(int64_t run, int64_t step, const std::vector<StateTensor>& adapter) {
  return keep_step(run, step, std::nullopt, &adapter);
}

bool StateStore::replace_best_step(int64_t run, int64_t step, const std::vector<StateTensor>& adapter) {
  return keep_step(run, step, std::nullopt, &adapter, true);
}

bool StateStore::keep_step(int64_t run, int64_t step, std::optional<double> loss, const std::vector<StateTensor>* best,
                           bool measured_another) {
  FilesLock lock(folder_);
  std::optional<TensorFile> record;
  if (best) {
    check_tensors(*best, *shapes_, false);
    record = write_tensors(folder_, kBestKind, run, *best);
  }
  bool kept = false;
  const auto keep = [&] {
    Transaction transaction(*database_);
    kept = Statement(*database_, "SELECT 1 FROM runs WHERE id = ? AND ended_because IS NULL").bind(run).step();
    if (!kept) return;
    if (loss)
      Statement(*database_, "INSERT OR REPLACE INTO judgements (run, step, loss) VALUES (?, ?, ?)").bind(run).bind(step).bind(*loss).run();
    if (record)
      Statement(*database_, "INSERT OR REPLACE INTO best_steps (run, step, file, sha256, bytes) VALUES (?, ?, ?, ?, ?)")
          .bind(run)
          .bind(step)
          .bind(record->file)
          .bind(record->sha256)
          .bind(record->bytes)
          .run();
    if (record) count_written(*database_, run, record->bytes);
    if (measured_another) Statement(*database_, "DELETE FROM losses WHERE version = ?").bind(-run).run();
    transaction.commit();
  };
  undone_when_full(folder_, record, keep);
  sweep();
  return kept;
}

std::optional<BestStep> StateStore::best_step(int64_t run) {
  FilesLock lock(folder_);
  Statement statement(*database_, "SELECT step, file, sha256, bytes FROM best_steps WHERE run = ?");
  if (!statement.bind(run).step()) return std::nullopt;
  BestStep best;
  best.step = statement.number(0);
  best.adapter = read_tensor_file(folder_, {statement.text(1), statement.text(2), statement.number(3)}, *shapes_);
  return best;
}

}  // namespace bespoke
