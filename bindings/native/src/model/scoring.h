// SPDX-License-Identifier: Apache-2.0
// How likely a personal model finds given answers, and which of some labels it would give. Prompt and answers are JSON, records too.
#pragma once

#include <string>

#include "model/personal_model.h"

namespace bespoke {

// A list of Score, in the order of `answers`: a list of texts, or, to token ids, of lists of token ids.
std::string score(PersonalModel& model, const std::string& prompt, const std::string& answers, CallSettings settings);
// The Classification: the likeliest of `labels`.
std::string classify(PersonalModel& model, const std::string& prompt, const std::string& labels, CallSettings settings);

}  // namespace bespoke
