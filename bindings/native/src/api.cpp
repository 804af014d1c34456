// SPDX-License-Identifier: Apache-2.0
// The C API: what it is given becomes C++, what is thrown becomes an error, nothing else happens here.
#include "bespoke.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "format/bundle.h"
#include "kernels/int4.h"
#include "run/golden.h"
#include "run/machine.h"
#include "run/training.h"
#include "state/store.h"
#ifdef BESPOKE_EXECUTORCH
#include "engines/executorch/engine.h"
#endif

#ifndef BESPOKE_VERSION
#define BESPOKE_VERSION "0.0.0"
#endif

using namespace bespoke;

struct bespoke_model {
  std::unique_ptr<Bundle> bundle;
  std::unique_ptr<StateStore> store;
  bespoke_engine engine{};
  bool owns_engine = false;
  std::optional<int64_t> limit_bytes;
  std::atomic<bool> stop{false};

  ~bespoke_model() {
    if (owns_engine && engine.destroy) engine.destroy(engine.context);
  }

  Personal personal() {
    return {*bundle, *store, limit_bytes, stop, [this](const Method& method, MemoryGuard& guard, const std::string& scratch_path) {
              return std::make_unique<Machine>(*bundle, method, engine, guard, stop, scratch_path);
            }};
  }
};

namespace {

// One allocation: the record, then its texts.
bespoke_error* error_of(const Error& error) {
  const std::string texts[] = {name_of(error.kind), error.subject, error.got, error.expected, error.next_step};
  size_t size = sizeof(bespoke_error);
  for (const std::string& text : texts) size += text.size() + 1;
  auto* record = static_cast<bespoke_error*>(std::malloc(size));
  if (!record) return nullptr;
  char* at = reinterpret_cast<char*>(record + 1);
  const char** fields[] = {&record->kind, &record->subject, &record->got, &record->expected, &record->next_step};
  record->code = code_of(error.kind);
  for (size_t i = 0; i < 5; i++) {
    *fields[i] = static_cast<char*>(std::memcpy(at, texts[i].c_str(), texts[i].size() + 1));
    at += texts[i].size() + 1;
  }
  return record;
}

template <class Body>
int guarded(bespoke_error** error, Body body) {
  if (error) *error = nullptr;
  const auto fail = [&](const Error& problem) {
    if (error) *error = error_of(problem);
    return code_of(problem.kind);
  };
  try {
    body();
    return 0;
  } catch (const Error& problem) {
    return fail(problem);
  } catch (const Abandoned&) {
    return fail({Kind::Internal, "the call", "a stop before there was anything to report", "to run to its end", "Call it again"});
  } catch (const std::bad_alloc&) {
    return fail({Kind::Budget, "memory", "no room for an allocation", "room within the limit that the system sets",
                 "Raise the limit or use a bundle built for a smaller budget"});
  } catch (const std::exception& problem) {
    return fail({Kind::Internal, "the device core", problem.what(), "no such failure", "Report this together with the bundle"});
  } catch (...) {
    return fail({Kind::Internal, "the device core", "an unknown failure", "no such failure", "Report this together with the bundle"});
  }
}

void check_size(size_t got, size_t expected, const char* what) {
  if (got != expected)
    throw Error(Kind::Config, what, "struct_size " + std::to_string(got), std::to_string(expected),
                "Compile the app with the header of this library");
}

void give(char** report, const std::string& text) {
  if (!report) return;
  *report = static_cast<char*>(std::malloc(text.size() + 1));
  if (!*report) throw std::bad_alloc();
  std::memcpy(*report, text.c_str(), text.size() + 1);
}

// A stop ends one call: what comes after it starts afresh.
template <class Body>
int stoppable(bespoke_model* model, char** report, bespoke_error** error, Body body) {
  if (report) *report = nullptr;
  const int code = guarded(error, [&] { give(report, body()); });
  model->stop = false;
  return code;
}

bespoke_engine own_engine(const bespoke_options& options) {
#ifdef BESPOKE_EXECUTORCH
  return executorch_engine(options.threads);
#else
  throw Error(Kind::MissingDependency, "engine", "a core built without ExecuTorch", "an engine in bespoke_options",
              "Give one, or build the core with ExecuTorch");
#endif
}

std::vector<StateTensor> adapter_shapes(Bundle& bundle) {
  std::vector<StateTensor> shapes;
  for (const auto& [name, tensor] : bundle.tensors(bundle.manifest().adapter)) 
    shapes.push_back({name, tensor.shape.data(), static_cast<int32_t>(tensor.shape.size()), nullptr});
  return shapes;
}

}  // namespace

void bespoke_error_free(bespoke_error* error) { std::free(error); }
void bespoke_text_free(char* text) { std::free(text); }
const char* bespoke_version(void) { return BESPOKE_VERSION; }

const char* bespoke_instruction_set(void) { return kernels::name_of(kernels::instruction_set(kernels::best_table())); }

int bespoke_open(const char* bundle, const char* state, const bespoke_options* given, bespoke_model** model, bespoke_error** error) {
  *model = nullptr;
  return guarded(error, [&] {
    bespoke_options options{};
    if (given) {
      check_size(given->struct_size, sizeof options, "bespoke_options");
      options = *given;
    }
    Bundle::Trust trust;
    if (options.pin_sha256) trust.pin_sha256 = options.pin_sha256;
    if (options.public_key) {
      trust.public_key.emplace();
      std::memcpy(trust.public_key->data(), options.public_key, trust.public_key->size());
    }
    auto opened = std::make_unique<bespoke_model>();
    opened->bundle = Bundle::open(bundle, trust);
    if (options.engine) {
      check_size(options.engine->struct_size, sizeof(bespoke_engine), "bespoke_engine");
      opened->engine = *options.engine;
    } else {
      opened->engine = own_engine(options);
      opened->owns_engine = true;
    }
    if (options.memory_mb > 0)
      opened->limit_bytes = static_cast<int64_t>(options.memory_mb * 1e6);
    else if (options.memory_mb == 0 && opened->bundle->manifest().memory_bytes)
      opened->limit_bytes = static_cast<int64_t>(*opened->bundle->manifest().memory_bytes);
    opened->store = StateStore::open(state, opened->bundle->manifest().base_sha256, adapter_shapes(*opened->bundle));
    *model = opened.release();
  });
}

void bespoke_close(bespoke_model* model) { delete model; }

int bespoke_train(bespoke_model* model, const bespoke_training* given, char** report, bespoke_error** error) {
  return stoppable(model, report, error, [&] {
    TrainRequest request;
    if (given) {
      check_size(given->struct_size, sizeof *given, "bespoke_training");
      if (given->method) request.method = given->method;
      if (given->settings) request.settings = given->settings;
      request.steps = given->steps;
      request.seed = given->seed;
      if (given->on_step) request.on_step = [given](int64_t step, double loss) { given->on_step(given->context, step, loss); };
    }
    Personal personal = model->personal();
    return train(personal, request);
  });
}

int bespoke_evaluate(bespoke_model* model, const char* split, char** report, bespoke_error** error) {
  return stoppable(model, report, error, [&] {
    Personal personal = model->personal();
    return evaluate_examples(personal, split);
  });
}

int bespoke_verify(bespoke_model* model, char** report, bespoke_error** error) {
  return stoppable(model, report, error, [&] {
    return verify(*model->bundle, model->personal().make_machine);
  });
}

void bespoke_stop(bespoke_model* model) { model->stop = true; }
