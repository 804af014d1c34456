// SPDX-License-Identifier: Apache-2.0
#include "state/losses.h"

#include "state/database.h"
#include "state/store.h"

namespace bespoke {

namespace {

const char* const kLiving = "(SELECT 0 UNION ALL SELECT id FROM versions UNION ALL SELECT -id FROM runs WHERE ended_because IS NULL)";

}  // namespace

void drop_stale_losses(Database& database) { database.execute(std::string("DELETE FROM losses WHERE version NOT IN ") + kLiving); }

void drop_losses(Database& database) { database.execute("DELETE FROM losses"); }

std::optional<double> StateStore::loss(int64_t version, const std::string& rows) {
  Statement statement(*database_, "SELECT loss FROM losses WHERE version = ? AND rows = ?");
  if (!statement.bind(version).bind(rows).step()) return std::nullopt;
  return statement.real(0);
}

void StateStore::keep_loss(int64_t version, const std::string& rows, double loss) {
  Statement(*database_, std::string("INSERT OR REPLACE INTO losses (version, rows, loss) SELECT ?1, ?2, ?3 WHERE ?1 IN ") + kLiving)
      .bind(version)
      .bind(rows)
      .bind(loss)
      .run();
}

}  // namespace bespoke
