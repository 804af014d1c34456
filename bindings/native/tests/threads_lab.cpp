// SPDX-License-Identifier: Apache-2.0
// Steps of a machine whose engine is slow unless it uses a favourite number of threads. A request is one document of JSON; the answer says
// of each step how many threads the pool had after it, and what the adapter was.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#ifdef BESPOKE_EXECUTORCH
#include <unistd.h>

#include "engines/executorch/engine.h"
#include "engines/executorch/threads.h"
#include "exec/machine.h"
#include "federated/adapter_hash.h"
#include "format/bundle/bundle.h"
#include "train/training.h"

using Json = nlohmann::json;
using namespace bespoke;

namespace {

// Microseconds of each call with the favourite number and with another one. What else a machine does takes less.
constexpr useconds_t kFast = 4000, kSlow = 3 * kFast;

bespoke_engine inner;  // ExecuTorch's
int32_t favourite = 0, used = 0;
int64_t opened = 0;

int open(void* context, const bespoke_artifact* artifact, void** program, char* message, size_t size) {
  opened++;
  return inner.open(context, artifact, program, message, size);
}

int run(void* context, void* program, const bespoke_tensor* const* operands, size_t operand_count, const bespoke_tensor* const* results,
        size_t result_count, char* message, size_t size) {
  if (favourite) usleep(used == favourite ? kFast : kSlow);
  return inner.run(context, program, operands, operand_count, results, result_count, message, size);
}

int32_t use_threads(void* context, int32_t threads) { return used = inner.use_threads(context, threads); }

Batch batch_of(const Method& method, int64_t length, int64_t step) {
  Batch batch;
  batch.clear_to(method.training.batch_size, length);
  for (size_t i = 0; i < batch.tokens.size(); i++) {
    batch.tokens[i] = 3 + (static_cast<int64_t>(i) * 7 + step) % 20;
    batch.targets[i] = 3 + (static_cast<int64_t>(i) * 7 + 7 + step) % 20;
    batch.mask[i] = 1;
  }
  batch.tokens_trained = static_cast<int64_t>(batch.tokens.size());
  batch.row_numbers.assign(static_cast<size_t>(batch.rows), 0);
  return batch;
}

Json steps(const Json& request) {
  const std::unique_ptr<Bundle> bundle = Bundle::open(BundlePlace(request.at("bundle").get<std::string>()));
  inner = executorch_engine(request.at("threads"));
  bespoke_engine table = inner;
  table.open = open, table.run = run, table.use_threads = use_threads;
  const Engine engine(table);
  const Limits limits;
  MemoryGuard guard(limits);
  Control control(limits);
  const Method& method = bundle->manifest().method(request.at("method"));
  Machine machine(*bundle, method, engine, guard, control, request.at("scratch"));
  const TensorSource start = adapter_of(*bundle);
  machine.fill(start);
  std::unique_ptr<Machine> answering;  // with the same engine, while its programs are open
  if (request.at("answers")) {
    answering = std::make_unique<Machine>(*bundle, *bundle->manifest().generation, engine, guard, control);
    AdapterView adapter;
    for (const auto& [name, tensor] : start) adapter.emplace(name, tensor);
    answering->prefill({3, 4, 5}, 0, adapter);
  }
  Json found = Json::array();
  int64_t number = 0;
  for (const Json& step : request.at("steps")) {
    favourite = step.at("favourite");
    machine.train_step({batch_of(method, step.at("length"), number)}, 1e-3, number + 1, 7);
    machine.flip();
    number++;
    const size_t pool = executorch::extension::threadpool::get_threadpool()->get_thread_count();
    found.push_back({{"pool", pool}, {"used", used}, {"opened", opened}, {"adapter", adapter_hash(machine.adapter())}});
  }
  return found;
}

}  // namespace

int main() {
  try {
    std::cout << steps(Json::parse(std::cin)) << "\n";
  } catch (const Error& error) {
    std::cout << Json{{"kind", name_of(error.kind)}, {"subject", error.subject}, {"got", error.got}} << "\n";
  }
}
#else
int main() { return 2; }
#endif
