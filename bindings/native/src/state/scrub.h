// SPDX-License-Identifier: Apache-2.0
// Zeroes what a database's pages hold between their cells: bytes of rows that were deleted or moved.
#pragma once

namespace bespoke {

class Database;

// Within a transaction, whose deletions it completes: SQLite's secure_delete zeroes a deleted cell, but copies of it from when pages were
// balanced stay in the free part of other pages. Reads every page and writes those in which something is left. StateError where the
// database is damaged.
void zero_free_space(Database& database);

}  // namespace bespoke
