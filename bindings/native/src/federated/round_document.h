// SPDX-License-Identifier: Apache-2.0
// What a server of federated learning sends (bindings/schema/round_document.schema.json): signed, read strictly, and checked before any
// of it is acted on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "format/bundle/manifest.h"

namespace bespoke {

struct ReceivedFile {
  std::string name, sha256;
  int64_t size = 0;
};

struct RoundGuidance {
  std::vector<float> coefficients;  // of each direction
  std::vector<ReceivedFile> files;
};

struct RoundSpan {  // rounds that have ended and follow each other
  int64_t first = 0, count = 0, directions = 0;
  std::vector<float> coefficients;  // of each direction of each round
  std::optional<RoundGuidance> guidance;
  bool half = false;    // the adapter is rounded to float16 after the last of them
  std::string adapter;  // sha256 then

  int64_t last() const { return first + count - 1; }
};

struct Measurement {
  int64_t round = 0, first = 0, count = 0;
  double coefficient = 0, guidance_coefficient = 0;
  std::vector<ReceivedFile> files;
  std::string adapter;  // sha256 of what is measured
};

struct Snapshot {
  int64_t round = 0;
  std::string adapter, sha256;
  int64_t size = 0;
};

struct RoundDocument {
  std::string task;
  std::vector<int64_t> taken;
  std::optional<Snapshot> snapshot;
  std::vector<RoundSpan> rounds;
  std::optional<Measurement> measure;
  double wait_seconds = 0;
  bool done = false;

  std::vector<ReceivedFile> files() const;  // all that it needs, in the order in which they are needed; without a name: a snapshot
};

// The document within an answer of the server. SignatureError unless the key of the manifest has signed it, DataError where the answer is
// something else.
std::string authenticated_document(const std::string& answer, const FederationRecord& federation);

// DataError where it is not what its schema says, or contradicts itself.
RoundDocument read_round_document(const std::string& document, const FederationRecord& federation);

}  // namespace bespoke
