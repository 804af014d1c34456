// SPDX-License-Identifier: Apache-2.0
// Texts that both runtimes write to a state, byte for byte as Python writes them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "state/records.h"

namespace bespoke {

std::string json_text(std::string_view utf8);  // a JSON string, quoted, ASCII only
std::string now();                             // UTC, for people to read
std::string utc(int64_t seconds);              // the same of a moment, to the second

std::string cursor_json(const CursorState& cursor);
CursorState cursor_from_json(const std::string& text, const std::string& subject);  // StateError

// Metrics of a step: the loss as text, since it may be NaN.
std::string step_metrics_json(int64_t step, double loss, bool rejected);
// Metrics of an accepted adapter; a loss that was not measured is null.
std::string judgement_json(const double* validation_loss, const double* validation_loss_before);

bool is_json_object(std::string_view text);

}  // namespace bespoke
