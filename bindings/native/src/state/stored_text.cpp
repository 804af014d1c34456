// SPDX-License-Identifier: Apache-2.0
#include "state/stored_text.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "format/number_text.h"
#include "state/errors.h"

namespace bespoke {

std::string json_text(std::string_view utf8) { return nlohmann::json(utf8).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace); }

namespace {
std::string iso(std::time_t seconds, int milliseconds) {
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[64];
  size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  if (milliseconds >= 0) n += static_cast<size_t>(snprintf(text + n, sizeof text - n, ".%03d", milliseconds));
  return std::string(text, n) + "+00:00";
}
}  // namespace

std::string now() {
  auto since = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  return iso(static_cast<std::time_t>(since / 1000), static_cast<int>(since % 1000));
}

std::string utc(int64_t seconds) { return iso(static_cast<std::time_t>(seconds), -1); }

std::string cursor_json(const CursorState& cursor) {
  return "{\"general_position\":" + std::to_string(cursor.general_position) + ",\"step\":" + std::to_string(cursor.step) +
         ",\"user_position\":" + std::to_string(cursor.user_position) + "}";
}

CursorState cursor_from_json(const std::string& text, const std::string& subject) {
  auto cursor = nlohmann::json::parse(text, nullptr, false);
  CursorState found;
  bool good = cursor.is_object();
  if (good) {
    for (const auto& [name, value] : cursor.items()) {
      int64_t* place = name == "step"               ? &found.step
                       : name == "user_position"    ? &found.user_position
                       : name == "general_position" ? &found.general_position
                                                    : nullptr;
      good &= place != nullptr && value.is_number_integer() && value >= 0 && value < int64_t{1} << 62;  // a step's rows are added
      if (good) *place = value.get<int64_t>();
    }
  }
  if (!good || found.step >= int64_t{1} << 32)
    throw damaged(subject, text.substr(0, 100), "step, user_position and general_position, integers from 0 to 2^62");
  return found;
}

std::string step_metrics_json(int64_t step, double loss, bool rejected) {
  return "{\"loss\":\"" + repr_of(loss) + "\",\"rejected\":" + (rejected ? "true" : "false") + ",\"step\":" + std::to_string(step) + "}";
}

std::string judgement_json(const double* validation_loss, const double* validation_loss_before) {
  auto number = [](const double* loss) -> std::string {
    if (!loss) return "null";
    if (std::isnan(*loss)) return "NaN";  // as Python's json writes what JSON has no word for
    if (std::isinf(*loss)) return *loss < 0 ? "-Infinity" : "Infinity";
    return repr_of(*loss);
  };
  return "{\"validation_loss\":" + number(validation_loss) + ",\"validation_loss_before\":" + number(validation_loss_before) + "}";
}

bool is_json_object(std::string_view text) {
  if (text.empty() || text.front() != '{') return false;
  if (nlohmann::json::accept(text)) return true;
  if (text.find("NaN") == std::string_view::npos && text.find("Infinity") == std::string_view::npos) return false;
  // Python writes and reads these three; here they are read as a number that nobody looks at.
  std::string without;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); i++) {
    if (text[i] == '"') quoted = !quoted;
    if (quoted && text[i] == '\\' && i + 1 < text.size()) without += text[i++];
    size_t word = quoted ? 0 : text.compare(i, 3, "NaN") == 0 ? 3 : text.compare(i, 8, "Infinity") == 0 ? 8 : 0;
    without += word ? '0' : text[i];
    if (word) i += word - 1;
  }
  return nlohmann::json::accept(without);
}

}  // namespace bespoke
