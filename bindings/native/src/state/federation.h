// SPDX-License-Identifier: Apache-2.0
// What a state keeps of federated learning: consent, the shared adapter, what it has cost, and numbers on their way to the server.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace bespoke {

struct Federation {
  bool joined = false;
  int64_t round = 0;     // last round that the shared adapter has followed
  bool differs = false;  // it was not the server's then: a snapshot has to take its place
  std::string adapter;   // sha256 of its pieces (federated/adapter_hash.h); empty before the first round
  double spent = 0;      // rho
  int64_t rounds_sent = 0, pending = 0;
  std::optional<std::string> document;  // of the server, which has been authenticated and not worked through
  bool done = false;                    // the task has ended
  double wait_seconds = 0;              // until the server is to be asked again
  int64_t heard_at = 0;                 // seconds since 1970, when it last answered
};

struct RoundNumbers {
  int64_t round = 0;
  std::string numbers;            // JSON, as in a device's document
  double cost = 0;                // rho
  std::vector<int64_t> examples;  // keys of those that were measured
};

struct FollowedRounds {
  int64_t from = 0, round = 0;  // the rounds behind `from`, up to `round`
  std::string adapter;          // sha256
  bool differs = false;
};

}  // namespace bespoke
