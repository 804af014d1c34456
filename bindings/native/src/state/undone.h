// SPDX-License-Identifier: Apache-2.0
// What becomes of a new tensor file when the transaction that would name it fails.
#pragma once

#include <optional>
#include <string>

#include "error.h"
#include "state/tensor_files.h"

namespace bespoke {

// Removes the file if the disk is full. Only then: SQLite has written no commit record. After another failure (a flush that failed)
// it may yet turn out to be committed, so the file stays until a later sweep asks the database.
template <class Work>
void undone_when_full(const std::string& folder, const TensorFile& record, Work work) {
  try {
    work();
  } catch (const Error& error) {
    if (error.kind == Kind::DiskFull && error.got.find("SQLITE_FULL") != std::string::npos) discard(folder + "/" + record.file);
    throw;
  }
}

// The same of a transaction that need not name a file.
template <class Work>
void undone_when_full(const std::string& folder, const std::optional<TensorFile>& record, Work work) {
  if (!record) return work();
  undone_when_full(folder, *record, work);
}

}  // namespace bespoke
