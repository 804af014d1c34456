// SPDX-License-Identifier: Apache-2.0
// bespoke-core: the device core as a process of its own, for `bespoke train` and for tests. One request (JSON) on standard input;
// events (JSON lines) on standard output: {"event": "step"}, then {"event": "report"} or {"event": "error"}. SIGTERM and SIGINT stop
// it in a committed state. It ends with the error's code.
#include <sys/time.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>

#include <nlohmann/json.hpp>

#include "bespoke.h"
#include "platform/memory.h"

using nlohmann::json;

namespace {

constexpr size_t kMaxRequestBytes = 1 << 20;

bespoke_model* volatile running = nullptr;  // for the signal handler, which has no other way to it

// A stop ends the call that runs, and the signal may come before there is one: it is repeated until the process ends.
void on_signal(int) {
  if (running) bespoke_stop(running);
  const itimerval again = {{0, 5000}, {0, 5000}};
  setitimer(ITIMER_REAL, &again, nullptr);
}

void on_alarm(int) {
  if (running) bespoke_stop(running);
}

void say(const json& event) {
  const std::string line = event.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

int fail(bespoke_error* error) {
  const int code = error->code;
  say({{"event", "error"}, {"code", code}, {"kind", error->kind}, {"subject", error->subject}, {"got", error->got},
       {"expected", error->expected}, {"next_step", error->next_step}});
  bespoke_error_free(error);
  return code ? code : 1;
}

int refuse(const std::string& got) {
  say({{"event", "error"}, {"code", 2}, {"kind", "ConfigError"}, {"subject", "request"}, {"got", got},
       {"expected", "an object with verb, bundle and state"}, {"next_step", "See bindings/native/src/tool/main.cpp"}});
  return 2;
}

// A field that may be absent or null.
template <class T>
T field(const json& request, const char* name, T otherwise) {
  const auto found = request.find(name);
  return found == request.end() || found->is_null() ? otherwise : found->get<T>();
}

// The same of 64 bits; what has more is no integer to the reader of JSON, and nothing is made of it.
int64_t whole(const json& request, const char* name, int64_t otherwise) {
  const auto found = request.find(name);
  const bool large = found != request.end() && found->is_number_unsigned() && found->get<uint64_t>() > uint64_t{INT64_MAX};
  if (large || (found != request.end() && found->is_number_float())) throw std::out_of_range(std::string(name) + " beyond 64 bits");
  return field<int64_t>(request, name, otherwise);
}

void on_step(void*, int64_t step, double loss) {
  // A loss that is no number is null in JSON.
  say({{"event", "step"}, {"step", step}, {"loss", loss}});
}

int run(const json& request) {
  const auto verb = request.at("verb").get<std::string>();
  const auto bundle = request.at("bundle").get<std::string>(), state = request.at("state").get<std::string>();
  const auto pin = field<std::string>(request, "pin_sha256", ""), key = field<std::string>(request, "public_key", "");
  std::string key_bytes;
  for (size_t i = 0; i + 1 < key.size(); i += 2) key_bytes.push_back(static_cast<char>(std::stoi(key.substr(i, 2), nullptr, 16)));
  if (!key.empty() && key_bytes.size() != 32) return refuse("a public key of " + std::to_string(key_bytes.size()) + " bytes");

  bespoke_options options{};
  options.struct_size = sizeof options;
  options.memory_mb = field<double>(request, "memory_mb", 0);
  options.threads = field<int>(request, "threads", 0);
  options.pin_sha256 = pin.empty() ? nullptr : pin.c_str();
  options.public_key = key.empty() ? nullptr : reinterpret_cast<const uint8_t*>(key_bytes.data());
  options.require_authenticated = field<bool>(request, "require_authenticated", false);
  bespoke_error* error = nullptr;
  bespoke_model* model = nullptr;
  if (bespoke_open(bundle.c_str(), state.c_str(), &options, &model, &error)) return fail(error);
  running = model;

  char* report = nullptr;
  int code;
  if (verb == "train") {
    const auto method = field<std::string>(request, "method", "");
    const std::string settings = request.contains("settings") && !request["settings"].is_null() ? request["settings"].dump() : "";
    bespoke_training training{};
    training.struct_size = sizeof training;
    training.method = method.empty() ? nullptr : method.c_str();
    training.steps = whole(request, "steps", 0);
    training.seed = whole(request, "seed", -1);
    training.settings = settings.empty() ? nullptr : settings.c_str();
    training.on_step = on_step;
    code = bespoke_train(model, &training, &report, &error);
  } else if (verb == "evaluate") {
    code = bespoke_evaluate(model, field<std::string>(request, "split", "validation").c_str(), &report, &error);
  } else if (verb == "verify") {
    code = bespoke_verify(model, &report, &error);
  } else {
    running = nullptr;
    bespoke_close(model);
    return refuse("verb '" + verb + "'");
  }
  if (code)
    code = fail(error);
  else
    std::printf("{\"event\":\"report\",\"report\":%s}\n", report);
  bespoke_text_free(report);
  running = nullptr;
  bespoke_close(model);
  return code;
}

}  // namespace

// ExecuTorch's log lines: our errors carry what a user can act on.
extern "C" __attribute__((visibility("default"))) void et_pal_emit_log_message(uint64_t, int, const char*, const char*, size_t,
                                                                               const char*, size_t) {}

int main() {
  bespoke::steady_malloc();
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is a full disk, told as one
  std::signal(SIGTERM, on_signal);
  std::signal(SIGINT, on_signal);
  std::signal(SIGALRM, on_alarm);
  std::string text;
  char piece[4096];
  for (size_t got; (got = std::fread(piece, 1, sizeof piece, stdin)) > 0 && text.size() <= kMaxRequestBytes;) text.append(piece, got);
  if (text.size() > kMaxRequestBytes) return refuse("more than 1 MiB");
  const json request = json::parse(text, nullptr, false);
  if (!request.is_object()) return refuse("no JSON object");
  if (request.value("verb", json()) == "version") {
    say({{"event", "report"}, {"report", {{"version", bespoke_version()}, {"instruction_set", bespoke_instruction_set()}}}});
    return 0;
  }
  try {
    return run(request);
  } catch (const std::exception& problem) {  // a field of another type
    return refuse(problem.what());
  }
}
