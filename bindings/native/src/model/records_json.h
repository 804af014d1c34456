// SPDX-License-Identifier: Apache-2.0
// What the store's verbs answer, as JSON: the records of sdk/bespoke/rules/records.py, whose fields stand in bindings/schema. A field
// that the SDK has and the core does not fill does not compile.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "federated/requests.h"
#include "federated/taking_part.h"
#include "generate/answer.h"
#include "generate/scoring.h"
#include "state/records.h"

namespace bespoke {

struct Added {  // `truncated_tokens`: how many found no room in the bundle's longest sequence. `unused_keys`: how often each
  AddedExample example;
  int64_t truncated_tokens = 0, truncated_trained_tokens = 0;
  std::map<std::string, uint64_t> unused_keys = {};
};

struct Description {  // of the open bundle
  std::string model, licence;
  int64_t context_length = 0;
  std::vector<std::string> methods, targets;
  bool takes_text = false, takes_messages = false, answers = false;
  std::optional<int64_t> memory_bytes;
};

struct PlannedTraining {  // what training takes with a method by its plans for one budget
  std::string method;
  std::optional<int64_t> memory_bytes;
  int64_t peak_bytes = 0;
  bool replayable = false;
};

struct StoredRun {
  Run run;
  std::vector<std::string> example_ids;
};

std::string record_json(const Added& added);
std::string record_json(const Classification& classification);
std::string record_json(const Description& description);
std::string record_json(const ExampleInfo& info);
std::string record_json(const FederationReport& report);
std::string record_json(const FederationRequest& request);
std::string record_json(const FederationStatus& status);
std::string record_json(const Forgotten& forgotten);
std::string record_json(const PlannedTraining& planned);
std::string record_json(const Score& score);
std::string record_json(const StoredRun& stored);
std::string record_json(const Version& version);

// A list of records, or null where there is none.
template <class Record>
std::string record_json(const std::vector<Record>& records) {
  std::string text = "[";
  for (const Record& record : records) text += (text.size() > 1 ? "," : "") + record_json(record);
  return text + "]";
}

template <class Record>
std::string record_json(const std::optional<Record>& record) {
  return record ? record_json(*record) : "null";
}

}  // namespace bespoke
