// SPDX-License-Identifier: Apache-2.0
// The core's tokenizer and turns in the hands of a test: a request is one line of JSON, an answer is one line of JSON. What is refused
// comes back as the error's parts.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "error.h"
#include "format/json.h"
#include "format/untrusted_text.h"
#include "text/examples.h"

using namespace bespoke;
using Json = nlohmann::json;

namespace {

struct Lab {
  Bytes file;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Turns> turns;
} lab;

Json open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY);
  struct stat status{};
  if (descriptor < 0 || fstat(descriptor, &status) != 0) return "no such file";
  const auto size = static_cast<size_t>(status.st_size);
  void* place = mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  close(descriptor);
  lab.file = {static_cast<const uint8_t*>(place), size};
  lab.tokenizer = std::make_unique<Tokenizer>(lab.file, "tokenizer.bin");
  const Tokenizer& tokenizer = *lab.tokenizer;
  return {{"bos", tokenizer.bos().value_or(-1)}, {"eos", tokenizer.eos().value_or(-1)}, {"vocabulary", tokenizer.vocabulary()}};
}

TextForm form_of(const Json& request) { return request.value("template", false) ? TextForm::of_template : TextForm::content; }

std::vector<int32_t> encode(const Tokenizer& tokenizer, const std::string& text, const Json& request) {
  std::optional<int32_t> previous;
  if (request.contains("previous") && !request["previous"].is_null()) previous = request["previous"].get<int32_t>();
  std::vector<int32_t> tokens;
  tokenizer.encode(text, form_of(request), previous, tokens);
  return tokens;
}

Json stream(const Tokenizer& tokenizer, const std::vector<int32_t>& tokens, bool at_start) {
  StreamDecoder decoder(tokenizer, at_start);
  Json pieces = Json::array();
  for (const int32_t token : tokens) pieces.push_back(decoder.next(token));
  pieces.push_back(decoder.finish());
  return pieces;
}

// Everything with a copy of the file in which some bytes are others, in memory that ends where the copy does.
Json use_mutated(const Json& request) {
  const size_t size = std::min<size_t>(lab.file.size, request["size"].get<size_t>());
  const std::unique_ptr<uint8_t[]> copy(new uint8_t[size]);
  std::copy_n(lab.file.data, size, copy.get());
  for (const Json& edit : request["edits"]) {
    if (edit[0].get<size_t>() < size) copy[edit[0].get<size_t>()] = edit[1].get<uint8_t>();
  }
  Tokenizer tokenizer({copy.get(), size}, "tokenizer.bin");
  tokenizer.protect(request["texts"][0].get<std::string>());
  std::vector<int32_t> all;
  for (const Json& text : request["texts"]) {
    for (const TextForm form : {TextForm::content, TextForm::of_template}) {
      for (const auto previous : {std::optional<int32_t>(), std::optional<int32_t>(0), std::optional<int32_t>(tokenizer.vocabulary())}) {
        try {
          tokenizer.encode(text.get_ref<const std::string&>(), form, previous, all);
        } catch (const Error& error) {
          if (error.kind != Kind::Data) throw;
        }
      }
    }
  }
  for (int32_t token = -1; token <= std::min(tokenizer.vocabulary(), 3000); token++) all.push_back(token);
  size_t bytes = tokenizer.decode(all, true).size() + tokenizer.decode(all, false).size();
  for (const Json& piece : stream(tokenizer, all, true)) bytes += Json(piece).dump().size();  // throws where it is no UTF-8
  return bytes;
}

size_t anonymous_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("RssAnon:", 0) == 0) return std::stoul(line.substr(8)) * 1024;
  }
  return 0;
}

// What it costs this process to open the file and to encode a text in pieces of so many bytes: seconds of its one thread, and the most
// anonymous memory that it had beyond what it had before.
Json measure(const Json& request) {
  std::ifstream file(request["text"].get<std::string>(), std::ios::binary);
  const size_t before = anonymous_bytes(), most = request["bytes"];
  open(request["path"].get<std::string>());
  size_t peak = anonymous_bytes(), characters = 0, count = 0, pieces = 0;
  double seconds = 0;
  std::string piece;
  std::vector<int32_t> tokens;
  for (std::string line; std::getline(file, line);) {
    piece += line + '\n';
    if (piece.size() < most && file.peek() != EOF) continue;
    tokens.clear();
    const std::clock_t began = std::clock();
    lab.tokenizer->encode(piece, TextForm::content, std::nullopt, tokens);
    seconds += static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC;
    characters += count_characters(piece);
    count += tokens.size();
    if (pieces++ % 100 == 0) peak = std::max(peak, anonymous_bytes());
    piece.clear();
  }
  return {{"seconds", seconds}, {"characters", characters}, {"tokens", count}, {"anonymous_bytes", peak - before}};
}

ExampleEncoder encoder_of(const Json& request) {
  return {lab.tokenizer.get(), request.value("without_turns", false) ? nullptr : lab.turns.get(),
          one_of<TrainOn>(request.value("train_on", "assistant")), request.value("max_length", size_t{256}),
          request.value("vocabulary", 0)};
}

Json document_of(const EncodedExample& encoded) {
  Json rows = Json::array();
  for (const TokenRow& row : encoded.rows) {
    rows.push_back({row.tokens, row.mask});
    if (!row.rejected_tokens.empty()) rows.back().insert(rows.back().end(), {row.rejected_tokens, row.rejected_mask});
  }
  return {{"rows", rows},
          {"tokens", encoded.tokens},
          {"trained_tokens", encoded.trained_tokens},
          {"truncated_tokens", encoded.truncated_tokens},
          {"truncated_trained_tokens", encoded.truncated_trained_tokens},
          {"windows", encoded.windows},
          {"unused_keys", encoded.unused_keys}};
}

Json act(const Json& request) {
  const std::string what = request["do"];
  if (what == "open") return open(request["path"].get<std::string>());
  if (what == "close") return lab = Lab(), true;
  if (what == "protect") return lab.tokenizer->protect(request["text"].get<std::string>()), true;
  if (what == "measure") return measure(request);
  if (what == "mutated") return use_mutated(request);
  if (what == "turns") {
    const std::string document = request["document"];
    lab.turns = std::make_unique<Turns>(Bytes{reinterpret_cast<const uint8_t*>(document.data()), document.size()}, "turns.json");
    for (const std::string& marker : lab.turns->markers()) lab.tokenizer->protect(marker);
    return true;
  }
  if (what == "render") {
    std::string text;
    for (const TurnPiece& piece : lab.turns->render(read_messages(request["messages"], "messages"), request["generate"], "messages"))
      text += piece.text;
    return text;
  }
  if (what == "example") return document_of(encoder_of(request).encode(request["example"], request.value("subject", "example")));
  if (what == "prompt") {
    const auto encoder = encoder_of(request);
    return encoder.prompt_tokens(encoder.read_prompt(request["prompt"]));
  }
  if (what == "stops") return encoder_of(request).stops();
  if (what == "encode_bytes") {
    const std::string hex = request["hex"];
    std::string text;
    for (size_t i = 0; i < hex.size(); i += 2) text += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    return encode(*lab.tokenizer, text, request);
  }
  Json answers = Json::array();
  for (const Json& text : request.value("texts", Json::array()))
    answers.push_back(encode(*lab.tokenizer, text.get_ref<const std::string&>(), request));
  for (const Json& tokens : request.value("tokens", Json::array())) {
    const auto ids = tokens.get<std::vector<int32_t>>();
    answers.push_back(what == "stream" ? stream(*lab.tokenizer, ids, request["at_start"])
                                       : Json(lab.tokenizer->decode(ids, request["skip_special"])));
  }
  return answers;
}

Json answer(const Json& request) {
  try {
    return {{"value", act(request)}};
  } catch (const Error& e) {
    return {{"error", name_of(e.kind)}, {"subject", e.subject}, {"got", e.got}, {"expected", e.expected}, {"next_step", e.next_step}};
  }
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) std::cout << answer(Json::parse(line)).dump(-1, ' ', true) << std::endl;
}
