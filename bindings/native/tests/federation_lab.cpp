// SPDX-License-Identifier: Apache-2.0
// Rounds of federated learning for Python: lines of JSON on stdin, a line of JSON on stdout for each. The first line opens a method of a
// bundle at its initial adapter, each other one is an action. Guidance comes from files of a folder, named as the plan names it. Adapters
// and gradients are files of float32, pieces by name.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#ifdef BESPOKE_EXECUTORCH
#include "engines/executorch/engine.h"
#include "exec/machine.h"
#include "format/hash.h"
#include "train/training.h"

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

std::string bytes_of(const std::vector<NamedTensor>& pieces) {
  std::string bytes;
  for (const NamedTensor& piece : pieces)
    bytes.append(reinterpret_cast<const char*>(piece.data), static_cast<size_t>(piece.elements()) * sizeof(float));
  return bytes;
}

Json written(const std::vector<NamedTensor>& pieces, const std::string& file) {
  Json shapes = Json::array();
  for (const NamedTensor& piece : pieces) shapes.push_back({piece.name, piece.shape});
  std::ofstream(file, std::ios::binary) << bytes_of(pieces);
  return shapes;
}

std::string digest(Machine& machine) {
  const std::string bytes = bytes_of(machine.adapter());
  return sha256_hex({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

std::string fill(Machine& machine, const std::string& file) {
  std::ifstream from(file, std::ios::binary);
  std::vector<std::vector<float>> values;
  TensorSource source;
  for (const NamedTensor& piece : machine.adapter()) {
    values.emplace_back(static_cast<size_t>(piece.elements()));
    from.read(reinterpret_cast<char*>(values.back().data()), static_cast<std::streamsize>(values.back().size() * sizeof(float)));
    source[piece.name] = {values.back().data(), piece.shape};
  }
  machine.fill(source);
  return digest(machine);
}

Json done(Machine& machine, const Json& action) {
  const std::string kind = action.at("do");
  if (kind == "adapter") return written(machine.adapter(), action.at("file"));
  if (kind == "gradient") return written(machine.sums(), action.at("file"));  // what was measured last
  if (kind == "fill") return fill(machine, action.at("file"));
  const Received received = action.contains("guidance") ? files_of(action["guidance"]) : Received();
  const auto direction = [&](const Json& along) {
    return Direction{action.at("seed"), action.at("round"), along.at(0), along.at(1), along.at(2), received};
  };
  if (kind == "measure") {
    std::vector<Batch> batches;
    for (const Json& batch : action.at("batches")) batches.push_back(batch_of(batch));
    return machine.measure(batches, direction(action.at("along")));
  }
  if (kind == "project") return machine.project(direction(action.at("along")));
  for (const Json& along : action.at("along")) machine.step_along(direction(along));
  return digest(machine);
}

Json failed(const Error& error) { return {{"kind", name_of(error.kind)}, {"subject", error.subject}, {"got", error.got}}; }

void serve(const Json& opening) {
  const std::unique_ptr<Bundle> bundle = Bundle::open(BundlePlace(opening.at("bundle").get<std::string>()));
  const Engine engine(executorch_engine(opening.at("threads")));
  const Limits limits;
  MemoryGuard guard(limits);
  Control control(limits);
  const Method& method = bundle->manifest().method(opening.at("method"));
  Machine machine(*bundle, method, engine, guard, control, opening.at("scratch"));
  machine.fill(adapter_of(*bundle));
  std::cout << Json(digest(machine)) << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    try {
      std::cout << done(machine, Json::parse(line)) << std::endl;
    } catch (const Error& error) {
      std::cout << failed(error) << std::endl;
    }
  }
}

}  // namespace

int main() {
  std::string opening;
  std::getline(std::cin, opening);
  try {
    serve(Json::parse(opening));
  } catch (const Error& error) {
    std::cout << failed(error) << std::endl;
  }
}
#else
int main() { return 2; }
#endif
