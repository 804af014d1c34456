// SPDX-License-Identifier: Apache-2.0
// Batches over a state folder, and noise, for tests in Python: one request (JSON) on stdin, one answer on stdout; numbers of noise go
// to a file.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "train/batches.h"
#include "exec/noise.h"
#include "state/store.h"

using namespace bespoke;
using Request = nlohmann::json;

namespace {

Request arrays_of(const Batch& batch) {
  Request found = Request::object();
  for (const auto& [name, array] : batch.arrays) found[name] = std::vector<int>(array.numbers.begin(), array.numbers.end());
  return found;
}

Request as_json(const Batch& batch) {
  return {{"source", name_of(batch.source)},
          {"rows", batch.row_numbers},
          {"sequence_length", batch.sequence_length},
          {"tokens_trained", batch.tokens_trained},
          {"tokens", batch.tokens},
          {"targets", batch.targets},
          {"mask", std::vector<int>(batch.mask.begin(), batch.mask.end())},
          {"arrays", arrays_of(batch)}};
}

Request batches(const Request& request) {
  const std::map<std::string, std::vector<int64_t>> shapes = request.at("adapter");
  std::vector<StateTensor> adapter;
  for (const auto& [name, shape] : shapes) adapter.push_back({name, shape.data(), static_cast<int32_t>(shape.size()), nullptr});
  const auto store = StateStore::open(request.at("folder"), request.at("base"), adapter);
  const Split split = request.at("split") == "train" ? Split::train : Split::validation;
  const auto user = user_rows(*store, store->rows(split)), none = no_rows();
  const std::vector<int64_t> lengths = request.at("sequence_lengths");
  const int64_t batch_size = request.at("batch_size"), vocab_size = request.at("vocab_size");
  BatchCursor cursor(*user, *none,
                     {request.at("seed"), batch_size, request.at("accumulation"), lengths, 0.5, vocab_size, request.value("pairs", false)});
  Request answer{{"steps", Request::array()}, {"evaluation", Request::array()}};
  CursorState state;
  std::vector<Batch> step;
  for (int64_t left = request.at("steps"); left > 0; left--) {
    state = cursor.step(state, step);
    answer["steps"].push_back(Request::array());
    for (const Batch& batch : step) answer["steps"].back().push_back(as_json(batch));
  }
  EvaluationBatches evaluation(*user, batch_size, lengths, vocab_size);
  for (Batch batch; evaluation.next(batch);) answer["evaluation"].push_back(as_json(batch));
  return answer;
}

Request noise_to_file(const Request& request) {
  std::vector<float> values(request.at("count").get<size_t>());
  noise(values.data(), static_cast<int64_t>(values.size()), request.at("seed"), request.at("step"), request.at("query"),
        request.at("block"), request.at("tensor"), request.at("rademacher") ? Distribution::rademacher : Distribution::normal);
  std::ofstream file(request.at("file").get<std::string>(), std::ios::binary);
  file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(4 * values.size()));
  return values.size();
}

}  // namespace

int main() {
  const Request request = Request::parse(std::cin);
  try {
    std::cout << (request.at("do") == "noise" ? noise_to_file(request) : batches(request)) << "\n";
  } catch (const Error& error) {
    std::cout << Request{{"error", name_of(error.kind)}, {"text", error.what()}} << "\n";
  }
}
