// SPDX-License-Identifier: Apache-2.0
// Drafts, and answers of a bundle's plan with and without them, for tests in Python: one request (JSON) on stdin, one answer on stdout. All
// answers of a request go by one machine, one after the other, with an adapter of random numbers.
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#ifdef BESPOKE_EXECUTORCH
#include "engines/executorch/engine.h"
#include "exec/machine.h"
#include "generate/answer.h"
#include "generate/cached_tokens.h"

using namespace bespoke;
using Json = nlohmann::json;

namespace {

long runs = 0;  // of programs
decltype(bespoke_engine::run) run_of_engine;

int counted(void* context, void* program, const bespoke_tensor* const* operands, size_t operand_count, const bespoke_tensor* const* results,
            size_t result_count, char* message, size_t message_size) {
  runs++;
  return run_of_engine(context, program, operands, operand_count, results, result_count, message, message_size);
}

struct RandomAdapter {
  RandomAdapter(Bundle& bundle, float scale) {
    uint32_t state = 7;
    for (const auto& [name, tensor] : bundle.tensors(bundle.manifest().adapter)) {
      std::vector<float>& piece = pieces[name];
      piece.resize(tensor.size / sizeof(float));
      for (float& number : piece) number = scale * (static_cast<float>((state = state * 1664525u + 1013904223u) >> 16) / 32768.0f - 1.0f);
      view[name] = {piece.data(), tensor.shape};
    }
  }
  std::map<std::string, std::vector<float>> pieces;
  AdapterView view;
};

uint64_t digest(const std::vector<float>& logits) {  // FNV-1a
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i < logits.size() * sizeof(float); i++)
    hash = (hash ^ reinterpret_cast<const unsigned char*>(logits.data())[i]) * 1099511628211u;
  return hash;
}

// None, those of the answer, or what a list says of it.
Draft draft_of(Answer& answer, const Json& drafts) {
  if (drafts.is_array())
    return [&](size_t most) {
      std::vector<int64_t> guesses;
      for (size_t at = answer.tokens().size(); at < drafts.size() && guesses.size() < most; at++) guesses.push_back(drafts[at]);
      return guesses;
    };
  if (drafts == false) return nullptr;
  return [&](size_t most) { return answer.draft(most); };
}

Json answered(Machine& machine, CachedTokens& cached, const AdapterView& adapter, const Bundle& bundle, const Json& asked) {
  AnswerSettings settings;
  settings.max_tokens = asked.at("max_tokens");
  settings.sampling = {asked.at("temperature"), 1.0, 0, asked.at("seed")};
  const auto context = static_cast<size_t>(bundle.manifest().context_length);
  Answer answer(asked.at("prompt"), settings, {asked.at("stop_ids"), context}, nullptr);
  Json digests = Json::array();
  const long before = runs;
  while (!answer.ended()) {
    const std::vector<float> logits = cached.next_logits(answer.seen(), adapter, draft_of(answer, asked.at("drafts")));
    digests.push_back(digest(logits));
    answer.next(logits);
  }
  return {{"tokens", answer.tokens()}, {"digests", digests}, {"runs", runs - before}, {"rows", machine.rows()}};
}

Json answers(const Json& request) {
  const std::unique_ptr<Bundle> bundle = Bundle::open(BundlePlace(request.at("bundle").get<std::string>()));
  bespoke_engine table = executorch_engine(request.at("threads"));
  run_of_engine = table.run, table.run = counted;
  const Engine engine(table);
  const Limits limits;
  MemoryGuard guard(limits);
  Control control(limits);
  Machine machine(*bundle, *bundle->manifest().generation, engine, guard, control);
  CachedTokens cached(machine);
  const RandomAdapter adapter(*bundle, request.at("adapter"));
  Json found = Json::array();
  for (const Json& asked : request.at("answers")) found.push_back(answered(machine, cached, adapter.view, *bundle, asked));
  return found;
}

// After each token of a text, what may follow.
Json drafts(const Json& request) {
  Json found = Json::array();
  for (const std::vector<int64_t> text : request.at("texts")) {
    Drafts drafts;
    std::vector<int64_t> seen;
    found.push_back(Json::array());
    for (const int64_t token : text) {
      seen.push_back(token);
      found.back().push_back(drafts.next(seen, request.at("most")));
    }
  }
  return found;
}

}  // namespace

int main() {
  const Json request = Json::parse(std::cin);
  try {
    std::cout << (request.contains("texts") ? drafts(request) : answers(request)) << "\n";
  } catch (const Error& error) {
    std::cout << Json{{"kind", name_of(error.kind)}, {"subject", error.subject}, {"got", error.got}} << "\n";
  }
}
#else
int main() { return 2; }
#endif
