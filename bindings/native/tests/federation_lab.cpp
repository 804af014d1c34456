// SPDX-License-Identifier: Apache-2.0
// Rounds of federated learning on a bundle's initial adapter, for tests in Python: one request (JSON) on stdin, one answer on stdout. Its
// actions follow each other on one machine. Guidance comes from files of a folder, named as the plan names it.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#ifdef BESPOKE_EXECUTORCH
#include "engines/executorch/engine.h"
#include "exec/machine.h"
#include "format/hash.h"

using namespace bespoke;
using Json = nlohmann::json;

namespace {

Received files_of(const std::string& folder) {
  return [folder](const std::string& name, uint8_t* to, size_t bytes) {
    std::ifstream file(folder + "/" + name, std::ios::binary);
    return static_cast<bool>(file.read(reinterpret_cast<char*>(to), static_cast<std::streamsize>(bytes)));
  };
}

Batch batch_of(const Json& from) {
  Batch batch;
  batch.clear_to(from.at("rows"), from.at("length"));
  batch.tokens = from.at("tokens").get<std::vector<int64_t>>();
  batch.targets = from.at("targets").get<std::vector<int64_t>>();
  batch.mask = from.at("mask").get<std::vector<float>>();
  for (const float one : batch.mask) batch.tokens_trained += one != 0;
  return batch;
}

std::string digest(Machine& machine) {
  std::string bytes;
  for (const NamedTensor& piece : machine.adapter())
    bytes.append(reinterpret_cast<const char*>(piece.data), static_cast<size_t>(piece.elements()) * sizeof(float));
  return sha256_hex({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

Json done(Machine& machine, const Json& action) {
  const Received received = action.contains("guidance") ? files_of(action["guidance"]) : Received();
  const auto direction = [&](int64_t number) {
    const Json& c = action.at("coefficients");
    return Direction{action.at("seed"), action.at("round"), number, c.at(0), c.at(1), received};
  };
  const std::string kind = action.at("do");
  if (kind == "measure") {
    std::vector<Batch> batches;
    for (const Json& batch : action.at("batches")) batches.push_back(batch_of(batch));
    return machine.measure(batches, direction(action.at("direction")));
  }
  if (kind == "project") return machine.project(direction(action.at("direction")));
  for (int64_t number = 0; number < action.at("directions"); number++) machine.step_along(direction(number));
  return digest(machine);
}

Json answer(const Json& request) {
  const std::unique_ptr<Bundle> bundle = Bundle::open(BundlePlace(request.at("bundle").get<std::string>()));
  const Engine engine(executorch_engine(request.at("threads")));
  const Limits limits;
  MemoryGuard guard(limits);
  Control control(limits);
  const Method& method = bundle->manifest().method(request.at("method"));
  Machine machine(*bundle, method, engine, guard, control, request.at("scratch"));
  TensorSource start;
  for (const auto& [name, tensor] : bundle->tensors(bundle->manifest().adapter))
    start[name] = {reinterpret_cast<const float*>(tensor.data), tensor.shape};
  machine.fill(start);
  Json answers = Json::array();
  for (const Json& action : request.at("actions")) answers.push_back(done(machine, action));
  return answers;
}

}  // namespace

int main() {
  const Json request = Json::parse(std::cin);
  try {
    std::cout << answer(request) << "\n";
  } catch (const Error& error) {
    std::cout << Json{{"kind", name_of(error.kind)}, {"subject", error.subject}, {"got", error.got}} << "\n";
  }
}
#else
int main() { return 2; }
#endif
