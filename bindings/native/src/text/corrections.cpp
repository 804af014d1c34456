// SPDX-License-Identifier: Apache-2.0
#include "text/corrections.h"

#include <nlohmann/json.hpp>

#include "error.h"

namespace bespoke {

std::string correction_json(const Prompt& answer, const std::string& better) {
  const auto* messages = std::get_if<std::vector<Message>>(&answer);
  const bool fits = messages && messages->size() >= 2 && messages->back().role == Place::assistant;
  if (!fits)
    throw Error(Kind::Data, "answer", messages ? "messages that do not end with an answer" : "no messages",
                "the messages of a chat, the last of which is the assistant's answer",
                "Give the messages up to the answer, or " + to_call(Verb::add, "example") + R"( with {"prompt", "chosen", "rejected"})");
  nlohmann::ordered_json example{{"prompt", nlohmann::ordered_json::array()}, {"chosen", better}, {"rejected", messages->back().content}};
  for (size_t i = 0; i + 1 < messages->size(); i++)
    example["prompt"].push_back({{"role", name_of((*messages)[i].role)}, {"content", (*messages)[i].content}});
  return example.dump();
}

}  // namespace bespoke
