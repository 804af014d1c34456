// SPDX-License-Identifier: Apache-2.0
// Losses that the gate measured: those of what is gone go with it.
#pragma once

namespace bespoke {

class Database;

void drop_stale_losses(Database& database);  // of versions that are gone and runs that have ended; inside a transaction
void drop_losses(Database& database);        // all: their rows are hashes of what may be forgotten

}  // namespace bespoke
