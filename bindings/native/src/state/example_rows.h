// SPDX-License-Identifier: Apache-2.0
// Token rows of an example on their way into the database.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "state/database.h"
#include "token_row.h"

namespace bespoke {

// DataError for rows that nothing could train on.
void check_rows(const std::vector<TokenRow>& rows, const std::string& id);

struct TokenCounts {
  int64_t tokens = 0, trained = 0;
};
TokenCounts counts_of(const std::vector<TokenRow>& rows);

// Inside a transaction.
void insert_rows(Database& database, int64_t example, const std::vector<TokenRow>& rows);

}  // namespace bespoke
