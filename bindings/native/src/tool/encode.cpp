// SPDX-License-Identifier: Apache-2.0
#include "tool/encode.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "error.h"
#include "format/json.h"
#include "platform/mapping.h"
#include "text/examples.h"

namespace bespoke {

namespace {

constexpr size_t kMaxExampleBytes = size_t{1} << 32;  // a file of one text is one example

MappedFile mapped(const std::string& path) {
  MappedFile file;
  struct stat status{};
  const int descriptor = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);  // of a pipe there is nothing to map
  const bool found = descriptor >= 0 && fstat(descriptor, &status) == 0;
  const int failed = found ? file.map(descriptor, 0, static_cast<size_t>(status.st_size)) : errno;
  if (descriptor >= 0) close(descriptor);
  if (failed) throw Error(Kind::Bundle, path, std::strerror(failed), "a file that can be mapped", "Build the bundle again");
  return file;
}

Json event_of(const char* event, const Error& e) {
  return {{"event", event},         {"kind", name_of(e.kind)},  {"subject", e.subject},          {"got", e.got},
          {"expected", e.expected}, {"next_step", e.next_step}, {"references", references_of(e)}};
}

Json event_of(const EncodedExample& encoded) {
  Json rows = Json::array();
  for (const TokenRow& row : encoded.rows) {
    rows.push_back({row.tokens, row.mask});
    if (!row.rejected_tokens.empty()) rows.back().insert(rows.back().end(), {row.rejected_tokens, row.rejected_mask});
  }
  return {{"event", "rows"},
          {"rows", std::move(rows)},
          {"tokens", encoded.tokens},
          {"trained_tokens", encoded.trained_tokens},
          {"truncated_tokens", encoded.truncated_tokens},
          {"truncated_trained_tokens", encoded.truncated_trained_tokens},
          {"windows", encoded.windows},
          {"unused_keys", encoded.unused_keys}};
}

Json answer(const ExampleEncoder& encoder, const Line& line) {
  const Json given = Json::parse(line.text, nullptr, false);
  std::string subject = "example";
  try {
    if (line.is_too_long) throw Error(Kind::Data, subject, "a line that is too long", "4 GiB at most", "Cut it into several examples");
    if (given.is_object() && given.contains("subject") && given["subject"].is_string()) subject = given["subject"].get<std::string>();
    if (!given.is_object() || !given.contains("example")) {
      throw Error(Kind::Data, subject, "a line that is no JSON object with an example", "one on each line",
                  "Write numbers and texts as JSON has them");
    }
    const EncodedExample encoded = encoder.try_encode(given["example"], subject);
    if (encoded.trained_tokens == 0) return event_of("untrained", encoder.nothing_to_train(given["example"], subject));
    return event_of(encoded);
  } catch (const Error& error) {
    return event_of("error", error);
  }
}

// What tokenizer.bin and turns.json are to an encoder, none where the bundle has none.
struct TextFiles {
  explicit TextFiles(const Json& request) {
    if (const Json path = request.value("tokenizer_bin", Json()); path.is_string()) {
      tokenizer_file = mapped(path.get<std::string>());
      tokenizer = std::make_unique<Tokenizer>(tokenizer_file.bytes(), path.get<std::string>());
    }
    if (const Json path = request.value("turns", Json()); path.is_string() && tokenizer) {
      const MappedFile file = mapped(path.get<std::string>());
      turns = std::make_unique<Turns>(file.bytes(), path.get<std::string>());
      protect_markers(*tokenizer, *turns);
    }
  }

  MappedFile tokenizer_file;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Turns> turns;
};

}  // namespace

int encode_examples(const Json& request, Lines& lines) {
  try {
    const TextFiles files(request);
    const ExampleEncoder encoder(files.tokenizer.get(), files.turns.get(), one_of<TrainOn>(request.at("train_on")),
                                 request.at("max_length").get<size_t>(), request.at("vocabulary").get<int32_t>());
    say({{"event", "ready"}});
    while (const std::optional<Line> line = lines.next(kMaxExampleBytes)) say(answer(encoder, *line));
  } catch (const Error& error) {
    say(event_of("error", error));
    return status_of(error.kind);
  }
  return 0;
}

}  // namespace bespoke
