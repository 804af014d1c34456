// SPDX-License-Identifier: Apache-2.0
#include "federated/requests.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "federated/adapter_hash.h"
#include "federated/private_numbers.h"
#include "federated/received_files.h"
#include "federated/round_document.h"
#include "federated/taking_part.h"
#include "format/json.h"
#include "format/number_text.h"

namespace bespoke {

namespace {

constexpr int64_t kMostPiece = int64_t{4} << 20;  // bytes of a file that are asked for at once
constexpr size_t kMostRequestBytes = size_t{1} << 20;

std::string initial_hash(Bundle& bundle) {
  std::vector<NamedTensor> pieces;
  for (const auto& [name, tensor] : adapter_of(bundle))
    if (bundle.manifest().trains(name)) pieces.push_back({name, tensor.shape, tensor.data});
  return adapter_hash(std::move(pieces));
}

std::string device_document(Bundle& bundle, StateStore& store, const FederationRecord& record, const Federation& state) {
  Json numbers = Json::array();
  for (const RoundNumbers& pending : store.outbox(record.task)) numbers.push_back(Json::parse(pending.numbers));
  const bool measures = can_pay(state.spent, record) && store.example_count(Split::train) > 0;
  const Json document = {
      {"task", record.task},      {"round", state.round}, {"adapter", state.adapter.empty() ? initial_hash(bundle) : state.adapter},
      {"differs", state.differs}, {"measures", measures}, {"numbers", std::move(numbers)}};
  return document.dump();
}

// Seconds until the server is to be asked again. A clock that was set anew can make the wait no longer than it was.
double wait_left(const Federation& state) {
  const auto heard_for = static_cast<double>(std::time(nullptr) - state.heard_at);
  return std::clamp(state.wait_seconds - heard_for, 0.0, state.wait_seconds);
}

void take_answer(StateStore& store, const FederationRecord& record, const std::string& answer) {
  const std::string text = authenticated_document(answer, record);
  const RoundDocument document = read_round_document(text, record);
  const Federation state = store.federation(record.task).value_or(Federation{});
  const int64_t start = document.snapshot ? document.snapshot->round : state.round;
  const int64_t first = document.rounds.empty() ? start + 1 : document.rounds.front().first;
  if (first > start + 1)
    throw Error(Kind::Data, "the server's rounds", "round " + std::to_string(first),
                std::to_string(start + 1) + ", the next one, or a snapshot", "Ask the server again");
  const bool has_work = document.snapshot || document.measure || !document.rounds.empty();
  store.keep_document(record.task, has_work ? std::optional(text) : std::nullopt, document.taken, document.done, document.wait_seconds);
}

// Bytes of a file: of the document that is worked through. Of one that is not wanted any more nothing is kept. A document with a file
// that the server no longer has leads nowhere: the server is asked again.
void take_file(StateStore& store, const FederationRecord& record, const Json& request, Bytes bytes) {
  const Federation state = store.federation(record.task).value_or(Federation{});
  if (!state.document) return;
  const ReceivedFiles received(store.folder());
  const std::string sha256 = request.at("sha256").get<std::string>();
  for (const ReceivedFile& file : read_round_document(*state.document, record).files()) {
    if (file.sha256 != sha256 || received.has(file)) continue;
    if (!bytes.size && file.size) return store.refuse_document(record.task, *state.document);
    return received.add(file, request.at("offset").get<int64_t>(), bytes);
  }
}

std::string explanation_of(const FederationRecord& record) {
  const std::string sent =
      "The app improves a model together with others. From time to time this device measures how your examples would change the shared "
      "part of the model, and sends a few numbers that say so. Your texts never leave the device. ";
  if (!(record.noise > 0))
    return sent +
           "The numbers are exact. A server that wanted to could learn from them whether you have a sentence that it already knows. "
           "What was sent cannot be recalled.";
  const double epsilon = epsilon_of(*record.budget, record).value_or(0);
  char shown[32];
  snprintf(shown, sizeof shown, "%.1f", epsilon);
  return sent +
         "Chance is added to every number, so that nobody can tell from it whether you took part (differential privacy, epsilon at most " +
         shown + " in all). When that is used up, nothing more is sent. What was sent cannot be recalled.";
}

}  // namespace

FederationRequest next_request(Bundle& bundle, StateStore& store) {
  const FederationRecord& record = joined_federation(bundle.manifest(), store);
  const Federation state = store.federation(record.task).value_or(Federation{});
  FederationRequest request;
  request.task = record.task;
  if (state.document) {
    const auto wanted = ReceivedFiles(store.folder()).wanted(read_round_document(*state.document, record).files());
    request.step = wanted ? FederationStep::fetch : FederationStep::take_part;
    if (wanted) {
      request.sha256 = wanted->first.sha256;
      request.offset = wanted->second;
      request.size = std::min(kMostPiece, wanted->first.size - wanted->second);
    }
  } else if (state.done && !state.differs && state.pending == 0) {
    request.step = FederationStep::done;
  } else if (const double left = wait_left(state); left > 0) {
    request.step = FederationStep::wait;
    request.wait_seconds = left;
  } else {
    request.body = device_document(bundle, store, record, state);
  }
  return request;
}

void take_response(Bundle& bundle, StateStore& store, const std::string& given, Bytes response) {
  const FederationRecord& record = joined_federation(bundle.manifest(), store);
  const Json request = given.size() > kMostRequestBytes ? Json() : Json::parse(given, nullptr, false);
  const auto is = [&](const char* name, bool (Json::*kind)() const noexcept) { return request.contains(name) && (request[name].*kind)(); };
  const bool is_ours =
      request.is_object() && is("step", &Json::is_string) && is("sha256", &Json::is_string) && is("offset", &Json::is_number_unsigned);
  const std::string step = is_ours ? request["step"].get<std::string>() : "";
  if (step == name_of(FederationStep::ask))
    take_answer(store, record, {reinterpret_cast<const char*>(response.data), response.size});
  else if (step == name_of(FederationStep::fetch))
    take_file(store, record, request, response);
  else
    throw Error(Kind::Config, setting("request"), "something else than a request that asks or fetches",
                "the request that the bytes came for", "Give what " + to_call(Verb::request) + " gave");
}

FederationStatus federation_status(const Manifest& manifest, StateStore& store) {
  FederationStatus status;
  if (!manifest.federation) return status;
  const FederationRecord& record = *manifest.federation;
  const Federation state = store.federation(record.task).value_or(Federation{});
  status.task = record.task;
  status.joined = state.joined;
  status.round = state.round;
  status.rounds_sent = state.rounds_sent;
  status.pending = state.pending;
  status.spent = state.spent;
  status.budget = record.budget;
  status.epsilon_spent = epsilon_of(state.spent, record);
  status.explanation = explanation_of(record);
  return status;
}

}  // namespace bespoke
