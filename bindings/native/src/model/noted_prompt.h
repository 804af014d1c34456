// SPDX-License-Identifier: Apache-2.0
// Notes of the user in a prompt: which words look for them, and how they stand before the question.
#pragma once

#include <string>
#include <vector>

#include "text/examples.h"

namespace bespoke {

// The user's last message, where it ends the prompt, or the text. Empty: nothing is asked. GenerationError for token ids.
std::string question_of(const Prompt& prompt);

// The prompt, which asks something, with notes before its question.
Prompt with_notes(const Prompt& prompt, const std::vector<std::string>& notes);

}  // namespace bespoke
