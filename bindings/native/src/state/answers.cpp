// SPDX-License-Identifier: Apache-2.0
// Answers that the gate has let an adapter give: a gate that a deadline cuts short goes on with the next one.
#include <cstring>

#include "state/database.h"
#include "state/store.h"

namespace bespoke {

std::optional<std::vector<int32_t>> StateStore::answer(int64_t run, int64_t step, const std::string& prompt) {
  Statement statement(*database_, "SELECT tokens FROM answers WHERE run = ? AND step = ? AND prompt = ?");
  if (!statement.bind(run).bind(step).bind(prompt).step()) return std::nullopt;
  const Bytes stored = statement.blob(0);
  std::vector<int32_t> tokens(stored.size / sizeof(int32_t));
  if (!tokens.empty()) memcpy(tokens.data(), stored.data, tokens.size() * sizeof(int32_t));
  return tokens;
}

void StateStore::keep_answer(int64_t run, int64_t step, const std::string& prompt, const std::vector<int32_t>& tokens) {
  const Bytes bytes{reinterpret_cast<const uint8_t*>(tokens.data()), tokens.size() * sizeof(int32_t)};
  Statement(*database_,
            "INSERT OR REPLACE INTO answers (run, step, prompt, tokens) "
            "SELECT ?1, ?2, ?3, ?4 WHERE EXISTS (SELECT 1 FROM runs WHERE id = ?1 AND ended_because IS NULL)")
      .bind(run)
      .bind(step)
      .bind(prompt)
      .bind(bytes)
      .run();
}

}  // namespace bespoke
