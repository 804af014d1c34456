// SPDX-License-Identifier: Apache-2.0
#include "train/judged.h"

#include <algorithm>
#include <set>

#include "exec/noise.h"

namespace bespoke {

int64_t predicted(const std::vector<RowPlace>& rows) {
  int64_t positions = 0;
  for (const RowPlace& row : rows) positions += row.length - 1;
  return positions;
}

int64_t examples_of(const std::vector<RowPlace>& rows) {
  std::set<int64_t> examples;
  for (const RowPlace& row : rows) examples.insert(row.example);
  return static_cast<int64_t>(examples.size());
}

std::vector<RowPlace> judged_rows(const std::vector<RowPlace>& rows) {
  const int64_t positions = predicted(rows), count = static_cast<int64_t>(rows.size());
  if (positions <= JUDGED_POSITIONS) return rows;
  const int64_t strata = std::max<int64_t>(1, count * JUDGED_POSITIONS / positions);
  std::vector<RowPlace> chosen;
  int64_t taken = 0;
  for (int64_t stratum = 0; stratum < strata; stratum++) {
    const int64_t first = stratum * count / strata, end = (stratum + 1) * count / strata;
    const uint32_t word = philox({static_cast<uint32_t>(stratum), 0, static_cast<uint32_t>(Stream::judged), 0}, 0)[0];
    const RowPlace& row = rows[static_cast<size_t>(first + (static_cast<int64_t>(word) * (end - first) >> 32))];
    if (!chosen.empty() && taken + row.length - 1 > JUDGED_POSITIONS) continue;
    chosen.push_back(row);
    taken += row.length - 1;
  }
  return chosen;
}

}  // namespace bespoke
