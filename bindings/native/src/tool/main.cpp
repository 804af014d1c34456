// SPDX-License-Identifier: Apache-2.0
// bespoke-core: the device core as a process of its own, for the Python SDK and for tests. It speaks JSON lines. The first line on standard
// input is the request; later ones change what runs: {"do": "cancel"}, {"do": "limit", "memory_mb": 200}, {"do": "pace", "share": 0.5}.
// Standard output: {"event": "progress"}, then {"event": "report"} or {"event": "error"}. {"do": "ping"} is answered {"event": "alive"} at
// once, whatever it computes. A line that it cannot read or follow is answered {"event": "refused", "order": null, ...} and changes
// nothing; a limit or a pace that cannot be set, {"event": "refused", ...}. SIGTERM and SIGINT cancel too. It ends with the error's status.
// The verbs `encode` and `answer` have lines of their own (tool/encode.h, tool/answering.h). "engine" in a request names another engine
// than the core's own (engines/module.h). `bespoke-core bench` takes no request and prints its report alone (tool/bench.h).
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "bespoke.h"
#include "enums.h"
#include "locks.h"
#include "platform/memory.h"
#include "tool/answering.h"
#include "tool/bench.h"
#include "tool/encode.h"
#include "tool/engine_library.h"
#include "tool/lines.h"

using bespoke::Line;
using bespoke::Lines;
using bespoke::say;
using bespoke::text_of;
using nlohmann::json;

namespace {

constexpr size_t kStackBytes = 1 << 20;  // of the thread that listens: XNNPACK alone keeps 384 KiB a thread; the default counts as 8 MiB

bespoke_cancel* cancel;  // made before anything can ask for it

struct Running {  // what the listening thread may change
  bespoke::Mutex lock;
  bespoke_model* model GUARDED_BY(lock) = nullptr;
} running;

// Destructors of the JSON library allocate. An allocation that fails gives this up, so that what unwinds has some memory.
char* reserve;
constexpr size_t kReserveBytes = 64 << 10;

[[noreturn]] void give_up_the_reserve() {
  delete[] std::exchange(reserve, nullptr);
  throw std::bad_alloc();
}

void on_signal(int) { bespoke_cancel_set(cancel); }

int fail(bespoke_error* error) {
  const int status = error->status;
  say(bespoke::event_of(error));
  return status;
}

int refuse(const std::string& got) {
  say({{"event", "error"},
       {"kind", "ConfigError"},
       {"subject", "request"},
       {"got", got},
       {"expected", "an object with verb, bundle and state"},
       {"next_step", "See bindings/native/src/tool/main.cpp"}});
  return BESPOKE_CONFIG_ERROR;
}

int out_of_memory() {
  constexpr char said[] =  // without an allocation
      "{\"event\":\"error\",\"kind\":\"BudgetExceeded\",\"subject\":\"memory\",\"got\":\"no room for an allocation\","
      "\"expected\":\"room within the limit that the system sets\","
      "\"next_step\":\"Raise the limit or use a bundle built for a smaller budget\"}\n";
  for (size_t done = 0; done < sizeof said - 1;) {
    const ssize_t put = write(STDOUT_FILENO, said + done, sizeof said - 1 - done);
    if (put <= 0 && errno != EINTR) break;
    if (put > 0) done += static_cast<size_t>(put);
  }
  return BESPOKE_BUDGET_EXCEEDED;
}

// Never destroyed: the thread that listens uses them until the process has ended, after `main` has returned.
Lines& lines = *new Lines;
bespoke::Inbox& inbox = *new bespoke::Inbox;  // of the verb `answer`
std::atomic<bool> takes_orders{false};        // it is the verb `answer`

void refuse_line(const std::string& got) {
  say({{"event", "refused"},
       {"order", nullptr},
       {"subject", "a line of standard input"},
       {"got", got},
       {"expected", "a JSON object with `do`, one a line"},
       {"next_step", "See bindings/native/src/tool/main.cpp"}});
}

// A change that cannot be made is refused and changes nothing; what is no change is an order for the thread that computes.
void change(const json& asked) {
  const auto what = asked.at("do").get<std::string>();
  if (what == "ping") return say({{"event", "alive"}});
  if (what == "cancel") {
    inbox.cancel();
    return bespoke_cancel_set(cancel);
  }
  if (what != "limit" && what != "pace") {
    if (!takes_orders) return refuse_line("do '" + what + "'");
    if (!asked.at("order").is_number_integer()) return refuse_line("an order that is no whole number");
    return inbox.put(asked);
  }
  const double value = asked.at(what == "limit" ? "memory_mb" : "share").get<double>();
  const bespoke::MutexLock held(running.lock);
  if (!running.model) return;
  bespoke_error* error = nullptr;
  if (!(what == "limit" ? bespoke_set_limit : bespoke_set_pace)(running.model, value, &error)) return;
  say({{"event", "refused"}, {"subject", error->subject}, {"got", error->got}, {"expected", error->expected}});
  bespoke_error_free(error);
}

void take_line(const Line& line) {
  if (line.is_too_long) return refuse_line("more than " + std::to_string(bespoke::kMaxLineBytes) + " bytes");
  const json asked = json::parse(line.text, nullptr, false);
  if (!asked.is_object()) return refuse_line("no JSON object in UTF-8");
  try {
    change(asked);
  } catch (const json::exception& problem) {  // a field that is absent or of another type
    refuse_line(problem.what());
  }
}

void* listen(void*) {
  try {
    while (const std::optional<Line> line = lines.next()) take_line(*line);
  } catch (const std::bad_alloc&) {
    out_of_memory();
  }
  inbox.end();
  return nullptr;
}

bool listen_to_changes() {
  pthread_attr_t attributes;
  pthread_t thread;
  if (pthread_attr_init(&attributes)) return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  const bool listens = pthread_create(&thread, &attributes, listen, nullptr) == 0;
  pthread_attr_destroy(&attributes);
  return listens;
}

// A field that may be absent or null.
template <class T>
T field(const json& request, const char* name, T otherwise) {
  const auto found = request.find(name);
  return found == request.end() || found->is_null() ? std::move(otherwise) : found->get<T>();
}

// The same of 64 bits; what has more is no integer to the reader of JSON, and nothing is made of it.
std::optional<int64_t> whole(const json& request, const char* name) {
  const auto found = request.find(name);
  if (found == request.end() || found->is_null()) return std::nullopt;
  if (found->is_number_float() || (found->is_number_unsigned() && found->get<uint64_t>() > uint64_t{INT64_MAX}))
    throw std::out_of_range(std::string(name) + " beyond 64 bits");
  return found->get<int64_t>();
}

int32_t end_at_once(void*, const bespoke_progress*) { return 1; }

int32_t on_progress(void*, const bespoke_progress* progress) {
  // A loss that is no number is null in JSON.
  say({{"event", "progress"},
       {"phase", bespoke::name_of(static_cast<bespoke::Phase>(progress->phase))},
       {"step", progress->step},
       {"steps", progress->steps},
       {"loss", progress->loss},
       {"footprint_bytes", progress->footprint_bytes}});
  return 0;
}

bespoke_status compute(const json& request, bespoke_model* model, char** report, bespoke_error** error) {
  bespoke_call call{};
  call.struct_size = sizeof call;
  call.cancel = cancel;
  call.deadline_seconds = field<double>(request, "deadline_seconds", 0);
  call.busy_seconds = field<double>(request, "busy_seconds", 0);
  call.progress = on_progress;
  const auto verb = request.at("verb").get<std::string>();
  if (verb == "train") {
    const auto method = field<std::string>(request, "method", "");
    std::string settings = request.contains("settings") && !request["settings"].is_null() ? request["settings"].dump() : "";
    if (request.contains("steps")) settings = json{{"steps", request["steps"]}}.dump();  // the core refuses it, and says what to give
    const std::optional<int64_t> seed = whole(request, "seed");
    bespoke_training training{};
    training.struct_size = sizeof training;
    training.method = text_of(method);
    training.run_steps = whole(request, "run_steps").value_or(0);
    training.most_steps = whole(request, "most_steps").value_or(0);
    training.has_seed = seed.has_value();
    training.seed = seed.value_or(0);
    training.settings = text_of(settings);
    const bespoke_status status = bespoke_train(model, &training, &call, report, error);
    if (status != BESPOKE_CANCELLED) return status;
    // Ended before it began: what this process was asked for is a report, which says so.
    bespoke_error_free(*error);
    call.cancel = nullptr;
    call.progress = end_at_once;
    return bespoke_train(model, &training, &call, report, error);
  }
  if (verb == "evaluate") {
    const auto split = field<std::string>(request, "split", "validation");
    const std::string examples = request.contains("examples") && !request["examples"].is_null() ? request["examples"].dump() : "";
    return bespoke_evaluate(model, text_of(split), text_of(examples), &call, report, error);
  }
  if (verb == "verify") return bespoke_verify(model, &call, report, error);
  if (verb == "take_part") return bespoke_federation_take_part(model, &call, report, error);
  if (verb == "adopt") return bespoke_federation_adopt(model, &call, report, error);
  throw std::invalid_argument("verb '" + verb + "'");
}

int report(const json& request, bespoke_model* model) {
  bespoke_error* error = nullptr;
  char* found = nullptr;
  if (compute(request, model, &found, &error)) return fail(error);
  std::printf("{\"event\":\"report\",\"report\":%s}\n", found);
  std::fflush(stdout);
  bespoke_free(found);
  return 0;
}

struct Options {  // with the texts that it points to
  explicit Options(const json& request)
      : pin(field<std::string>(request, "pin_sha256", "")), key(bytes_of(field<std::string>(request, "public_key", ""))) {
    given.struct_size = sizeof given;
    given.memory_mb = field<double>(request, "memory_mb", 0);
    given.threads = field<int>(request, "threads", 0);
    given.pin_sha256 = text_of(pin);
    given.public_key = key.empty() ? nullptr : reinterpret_cast<const uint8_t*>(key.data());
    given.require_authenticated = field<bool>(request, "require_authenticated", false);
  }
  Options(const Options&) = delete;

  static std::string bytes_of(const std::string& digits) {
    std::string bytes;
    for (size_t i = 0; i + 1 < digits.size(); i += 2) bytes.push_back(static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16)));
    if (!digits.empty() && bytes.size() != 32) throw std::invalid_argument("a public key of " + std::to_string(bytes.size()) + " bytes");
    return bytes;
  }

  const std::string pin, key;
  bespoke_options given{};
};

// {"verb": "install", "archives": [...], "folder": ...}, and pin and key where the manifest is to be held against them.
int install(const json& request) {
  const auto archives = request.at("archives").get<std::vector<std::string>>();
  const auto folder = request.at("folder").get<std::string>();
  const Options options(request);
  std::vector<bespoke_text> paths;
  for (const std::string& archive : archives) paths.push_back(text_of(archive));
  bespoke_error* error = nullptr;
  if (bespoke_install(paths.data(), paths.size(), text_of(folder), &options.given, nullptr, &error)) return fail(error);
  say({{"event", "report"}, {"report", {{"folder", folder}}}});
  return 0;
}

void end_by_signals() {  // what changes nothing needs not be brought to an end
  for (const int number : {SIGTERM, SIGINT}) std::signal(number, SIG_DFL);
}

int run_bench(const json& request) {
  const bool is_quick = field<bool>(request, "quick", false);
  end_by_signals();
  if (!listen_to_changes()) return out_of_memory();  // it answers pings
  say({{"event", "report"}, {"report", bespoke::bench(is_quick)}});
  return 0;
}

// What stands after the program's name: nothing but `bench` and perhaps --quick.
int run_arguments(const std::vector<std::string_view>& arguments) {
  const bool is_quick = arguments.size() == 2 && arguments[1] == "--quick";
  if (arguments[0] == "bench" && (arguments.size() == 1 || is_quick)) {
    end_by_signals();
    std::printf("%s\n", bespoke::bench(is_quick).dump(2, ' ', false, json::error_handler_t::replace).c_str());
    return 0;
  }
  std::string got = "'";
  for (const std::string_view argument : arguments) got.append(got.size() > 1 ? " " : "").append(argument);
  say({{"event", "error"},
       {"kind", "ConfigError"},
       {"subject", "command line"},
       {"got", got + "'"},
       {"expected", "'bench', 'bench --quick', or no arguments and a request on standard input"},
       {"next_step", "See bindings/native/src/tool/main.cpp"}});
  return BESPOKE_CONFIG_ERROR;
}

int run(const json& request) {
  const auto path = request.at("bundle").get<std::string>(), state = request.at("state").get<std::string>();
  Options options(request);
  bespoke_engine engine{};
  if (const auto name = field<std::string>(request, "engine", ""); !name.empty()) {
    if (const std::optional<json> refused = bespoke::open_engine(name, engine)) {
      say(*refused);
      return BESPOKE_MISSING_DEPENDENCY;
    }
    options.given.engine = &engine;
  }
  bespoke_bundle bundle{};
  bundle.struct_size = sizeof bundle;
  bundle.path = text_of(path);
  bespoke_call call{};
  call.struct_size = sizeof call;
  call.busy_seconds = field<double>(request, "busy_seconds", 0);
  bespoke_error* error = nullptr;
  bespoke_model* model = nullptr;
  if (bespoke_open(&bundle, text_of(state), &options.given, &call, &model, &error)) return fail(error);
  {
    const bespoke::MutexLock held(running.lock);
    running.model = model;
  }
  const auto close = [&] {
    {
      const bespoke::MutexLock held(running.lock);
      running.model = nullptr;
    }
    bespoke_release(model);
  };

  int status = 0;
  try {
    if (request.at("verb") == "answer") {
      end_by_signals();
      bespoke::answer(model, inbox);
    } else {
      status = report(request, model);
    }
  } catch (...) {
    close();
    throw;
  }
  close();
  return status;
}

}  // namespace

// ExecuTorch's log lines: our errors carry what a user can act on.
extern "C" __attribute__((visibility("default"))) void et_pal_emit_log_message(uint64_t, int, const char*, const char*, size_t, const char*,
                                                                               size_t) {}

int main(int count, char** arguments) {
  bespoke::steady_malloc();
  reserve = new (std::nothrow) char[kReserveBytes];
  std::set_new_handler(give_up_the_reserve);
  cancel = bespoke_cancel_new();
  if (!cancel) return out_of_memory();
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is a full disk, told as one
  std::signal(SIGTERM, on_signal);
  std::signal(SIGINT, on_signal);
  try {
    if (count > 1) return run_arguments({arguments + 1, arguments + count});
    const std::optional<Line> line = lines.next();
    if (!line || line->is_too_long) return refuse("no line of at most 64 MiB");
    const json request = json::parse(line->text, nullptr, false);
    if (!request.is_object()) return refuse("no JSON object in UTF-8");
    takes_orders = request.value("verb", json()) == "answer";
    if (request.value("verb", json()) == "version") {
      say({{"event", "report"}, {"report", {{"version", bespoke_version()}, {"instruction_set", bespoke_instruction_set()}}}});
      return 0;
    }
    if (request.value("verb", json()) == "encode") return bespoke::encode_examples(request, lines);
    if (request.value("verb", json()) == "install") return install(request);
    if (request.value("verb", json()) == "bench") return run_bench(request);
    return listen_to_changes() ? run(request) : out_of_memory();
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::exception& problem) {  // a field of another type
    return refuse(problem.what());
  }
}
