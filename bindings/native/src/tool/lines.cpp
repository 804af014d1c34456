// SPDX-License-Identifier: Apache-2.0
#include "tool/lines.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <utility>

namespace bespoke {

std::optional<Line> Lines::next(size_t max_bytes) {
  Line line;
  for (;;) {
    const size_t end = text_.find('\n', searched_);
    if (std::min(end, text_.size()) > max_bytes) line.is_too_long = true;
    if (end != std::string::npos) {
      if (!line.is_too_long) line.text = text_.substr(0, end);
      text_.erase(0, end + 1);
      searched_ = 0;
      return line;
    }
    if (line.is_too_long) std::string().swap(text_);
    searched_ = text_.size();
    if (ended_) {
      if (text_.empty() && !line.is_too_long) return std::nullopt;
      searched_ = 0;
      line.text = std::exchange(text_, {});
      return line;
    }
    char piece[4096];
    const ssize_t got = read(STDIN_FILENO, piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      ended_ = true;
    else
      text_.append(piece, static_cast<size_t>(got));
  }
}

void say(const nlohmann::json& event) {
  const std::string line = event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

nlohmann::json event_of(bespoke_error* error) {
  const std::unique_ptr<bespoke_error, void (*)(bespoke_error*)> held(error, bespoke_error_free);
  return {{"event", "error"},
          {"kind", error->kind},
          {"subject", error->subject},
          {"got", error->got},
          {"expected", error->expected},
          {"next_step", error->next_step},
          {"references", error->references ? error->references : ""}};
}

}  // namespace bespoke
