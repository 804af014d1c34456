// SPDX-License-Identifier: Apache-2.0
// Tokens chosen from rows of logits, for tests in Python: one request (JSON) on stdin, one answer on stdout; logits come in a file.
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "error.h"
#include "generate/sampling.h"

using namespace bespoke;
using Json = nlohmann::json;

namespace {

Json chosen(const std::vector<float>& logits, const Json& draw) {
  const Sampling sampling{draw.at("temperature"), draw.at("top_p"), draw.at("top_k"), draw.at("seed")};
  try {
    check(sampling);
    return choose_token(logits, sampling, draw.at("position"));
  } catch (const Error& error) {
    return {{"kind", name_of(error.kind)}, {"subject", error.subject}, {"got", error.got}, {"expected", error.expected}};
  }
}

}  // namespace

int main() {
  const Json request = Json::parse(std::cin);
  std::ifstream file(request.at("file").get<std::string>(), std::ios::binary);
  std::vector<float> logits(request.at("vocabulary").get<size_t>());
  Json answer = Json::array();
  for (const Json& draw : request.at("draws")) {  // one for each row of the file
    file.read(reinterpret_cast<char*>(logits.data()), static_cast<std::streamsize>(sizeof(float) * logits.size()));
    answer.push_back(chosen(logits, draw));
  }
  std::cout << answer << "\n";
}
