// SPDX-License-Identifier: Apache-2.0
#include "model/noted_prompt.h"

#include "error.h"

namespace bespoke {

namespace {

// Of four wordings that were tried with SmolLM2-135M, the one with which it gave most right answers.
std::string noted(const std::vector<std::string>& notes, const std::string& question) {
  std::string text = "Notes:\n";
  for (const std::string& note : notes) text += "- " + note + "\n";
  return text + "\n" + question;
}

}  // namespace

std::string question_of(const Prompt& prompt) {
  if (std::holds_alternative<std::vector<int32_t>>(prompt))
    throw Error(Kind::Generation, "prompt", "token ids", "messages or a text, since notes are found by their words",
                "Give messages or a text, or open a session without notes");
  if (const auto* text = std::get_if<std::string>(&prompt)) return *text;
  const auto& messages = std::get<std::vector<Message>>(prompt);
  return messages.back().role == Place::user ? messages.back().content : std::string();
}

Prompt with_notes(const Prompt& prompt, const std::vector<std::string>& notes) {
  Prompt asked = prompt;
  if (auto* messages = std::get_if<std::vector<Message>>(&asked)) {
    std::string& question = messages->back().content;
    question = noted(notes, question);
  } else {
    auto& text = std::get<std::string>(asked);
    text = noted(notes, text);
  }
  return asked;
}

}  // namespace bespoke
