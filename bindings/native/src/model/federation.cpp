// SPDX-License-Identifier: Apache-2.0
// The verbs of federated learning.
#include "exec/machine.h"
#include "federated/received_files.h"
#include "federated/requests.h"
#include "federated/taking_part.h"
#include "model/computing.h"
#include "model/personal_model.h"
#include "model/records_json.h"

namespace bespoke {

void PersonalModel::join_federation() {
  const FederationRecord& record = federation_of(manifest());
  const auto alone = storing_.turn(kHoweverLong);
  store_->join_federation(record.task);
}

void PersonalModel::leave_federation() {
  const FederationRecord& record = federation_of(manifest());
  const auto alone = storing_.turn(kHoweverLong);
  store_->leave_federation(record.task);
  ReceivedFiles(store_->folder()).remove_all_but({});
}

std::string PersonalModel::federation_status() {
  const auto alone = storing_.turn(kHoweverLong);
  return record_json(bespoke::federation_status(manifest(), *store_));
}

std::string PersonalModel::federation_request() {
  const auto alone = storing_.turn(kHoweverLong);
  return record_json(next_request(*bundle_, *store_));
}

void PersonalModel::federation_respond(const std::string& request, Bytes response) {
  const auto alone = storing_.turn(kHoweverLong);
  take_response(*bundle_, *store_, request, response);
}

std::string PersonalModel::federation_take_part(CallSettings settings) {
  return compute_by_method(std::move(settings), [&](Personal& personal) {
    return record_json(take_part(personal, [&](const Method& method, MemoryGuard& guard, const std::string& scratch_path) {
      return std::make_unique<Machine>(*bundle_, method, *engine_, guard, control_, scratch_path);
    }));
  });
}

std::string PersonalModel::federation_adopt(CallSettings settings) {
  return compute_by_method(std::move(settings), [&](Personal& personal) { return adopt_shared(personal); });
}

}  // namespace bespoke
