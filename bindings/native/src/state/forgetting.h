// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace bespoke {

class Database;

void forget_all_runs(Database& database);  // with all adapters; examples stay. Inside a transaction

}  // namespace bespoke
