// SPDX-License-Identifier: Apache-2.0
#include "state/example_rows.h"

#include <algorithm>

#include "error.h"

namespace bespoke {

namespace {

constexpr size_t kMostTokens = Database::kMostValueBytes / sizeof(int32_t);

bool is_good(const std::vector<int32_t>& tokens, const std::vector<uint8_t>& mask) {
  return tokens.size() >= 2 && tokens.size() <= kMostTokens && mask.size() == tokens.size() &&
         *std::min_element(tokens.begin(), tokens.end()) >= 0 && *std::max_element(mask.begin(), mask.end()) <= 1 && mask[0] == 0;
}

bool is_good_row(const TokenRow& row) {
  const bool alone = row.rejected_tokens.empty() && row.rejected_mask.empty();
  return is_good(row.tokens, row.mask) && (alone || is_good(row.rejected_tokens, row.rejected_mask));
}

// Little-endian, as every machine that this is built for.
Bytes token_bytes(const std::vector<int32_t>& tokens) {
  return {reinterpret_cast<const uint8_t*>(tokens.data()), sizeof(int32_t) * tokens.size()};
}

}  // namespace

void check_rows(const std::vector<TokenRow>& rows, const std::string& id) {
  const std::string subject = "example '" + id + "'";
  if (!std::all_of(rows.begin(), rows.end(), is_good_row))
    throw Error(Kind::Data, subject, "another row of tokens",
                "2 to " + std::to_string(kMostTokens) + " tokens of at least 0; a mask of 0 and 1 that starts with 0",
                "Tokenize it with the bundle's encoder");
  if (counts_of(rows).trained == 0)
    throw Error(Kind::Data, subject, "no token that is trained on", "at least one token to train on",
                "Look at " + setting("train_on") + " and at the roles");
}

TokenCounts counts_of(const std::vector<TokenRow>& rows) {
  TokenCounts counts;
  for (const TokenRow& row : rows) {
    counts.tokens += static_cast<int64_t>(row.tokens.size());
    counts.trained += std::count(row.mask.begin(), row.mask.end(), 1);
  }
  return counts;
}

void insert_rows(Database& database, int64_t example, const std::vector<TokenRow>& rows) {
  Statement insert(database,
                   "INSERT INTO example_rows (example, row, tokens, mask, rejected_tokens, rejected_mask) VALUES (?, ?, ?, ?, ?, ?)");
  int64_t number = 0;
  for (const TokenRow& row : rows) {
    insert.bind(example).bind(number++);
    insert.bind(token_bytes(row.tokens)).bind(Bytes{row.mask.data(), row.mask.size()});
    if (row.rejected_tokens.empty())
      insert.bind(std::optional<std::string>()).bind(std::optional<std::string>());
    else
      insert.bind(token_bytes(row.rejected_tokens)).bind(Bytes{row.rejected_mask.data(), row.rejected_mask.size()});
    insert.run();
    insert.again();
  }
}

}  // namespace bespoke
