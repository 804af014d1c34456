// SPDX-License-Identifier: Apache-2.0
// What an app carries between a device and the server of a federation: the core has no network of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bytes.h"
#include "enums.h"
#include "format/bundle/bundle.h"
#include "state/store.h"

namespace bespoke {

struct FederationRequest {  // sdk/bespoke/rules/records.py
  FederationStep step = FederationStep::ask;
  std::string task, body, sha256;
  int64_t offset = 0, size = 0;
  double wait_seconds = 0;
};

struct FederationStatus {  // likewise
  std::optional<std::string> task;
  bool joined = false;
  int64_t round = 0, rounds_sent = 0, pending = 0;
  double spent = 0;
  std::optional<double> budget, epsilon_spent;
  std::string explanation;
};

// What is to be done next. Numbers that were made are in the body again and again, the same, until the server confirms them.
FederationRequest next_request(Bundle& bundle, StateStore& store);

// Takes what came for a request (its JSON): the server's answer, or bytes of a file. SignatureError and DataError where it is not what the
// server may send; nothing has changed then.
void take_response(Bundle& bundle, StateStore& store, const std::string& request, Bytes response);

FederationStatus federation_status(const Manifest& manifest, StateStore& store);

}  // namespace bespoke
