// SPDX-License-Identifier: Apache-2.0
// What a run has written to tensor files, over all of its calls: flash wears.
#pragma once

#include "state/database.h"

namespace bespoke {

inline void count_written(Database& database, int64_t run, int64_t bytes) {  // in the transaction that names the file
  Statement(database, "UPDATE runs SET bytes_written = bytes_written + ? WHERE id = ?").bind(bytes).bind(run).run();
}

}  // namespace bespoke
