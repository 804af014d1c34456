// SPDX-License-Identifier: Apache-2.0
// Tensors of a committed step, of the best one of a run, of an accepted adapter or of the shared one: safetensors files that the database
// names with their sha256; streamed from where the tensors lie, read as a mapping.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "state/records.h"
#include "state/tables.h"

namespace bespoke {

extern const char* const kSlotKind;      // "slot"
extern const char* const kBestKind;      // "best"
extern const char* const kAcceptedKind;  // "accepted"
extern const char* const kSharedKind;    // "shared"

struct TensorFile {  // what the database keeps of one
  std::string file, sha256;
  int64_t bytes = 0;
};

// AdapterError unless `tensors` are the adapter's pieces, finite where they are to be accepted. `with_state` also allows optimizer
// state, `<piece>.<state>`: of which shapes is for the method's plan to say.
void check_tensors(const std::vector<StateTensor>& tensors, const TensorShapes& adapter, bool with_state);

// Writes a new file of `folder` and flushes it: to a temporary name, renamed, the folder flushed. DiskFull or StateError; then
// nothing is left. The name ends at random: a commit whose outcome is unknown must not meet its own second attempt.
TensorFile write_tensors(const std::string& folder, const std::string& kind, int64_t number, const std::vector<StateTensor>& tensors);

int64_t tensor_file_bytes(const std::vector<StateTensor>& tensors);  // of the file that `write_tensors` writes

// StateError unless the file is what was committed, and holds the `expected` tensors and no other.
MappedTensors read_tensor_file(const std::string& folder, const TensorFile& record, const TensorShapes& expected);

// Removes tensor files that are not `named`, zeroed first where asked: they may hold what somebody wants forgotten. Under the lock.
void sweep_tensor_files(const std::string& folder, const std::vector<std::string>& named, bool overwrite);
int erase(const std::string& path, bool overwrite);  // zeroes it first where asked, unlinks it; an errno. A link is never followed
void discard(const std::string& path);               // where it fails, a later sweep does it: the error before is the one to tell
std::string typed(const StateTensor& tensor);        // "float32 [8, 64]"
bool is_tensor_file_name(std::string_view name);     // of a finished one
std::vector<std::string> tensor_files_in(const std::string& folder);  // finished ones

}  // namespace bespoke
