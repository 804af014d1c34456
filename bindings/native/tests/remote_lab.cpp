// SPDX-License-Identifier: Apache-2.0
// ExecuTorch as an engine whose memory the processor does not see and whose runs wait for `finish`: what a graphics card is like.
// `remote_lab BUNDLE STATE METHOD [1.0]` trains and prints the report, and behind it how often the engine's threads were asked for, and
// with how many each step ran; the numbers are those of ExecuTorch alone. 1.0: the table is as large as it was in that version, without
// what came later. It ends with 3 where the core touched what is not the processor's, or forgot something.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bespoke.h"
#ifdef BESPOKE_EXECUTORCH
#include "engines/executorch/engine.h"

namespace {

constexpr size_t kTail = 128;  // XNNPACK may read so far past an operand

struct Call {
  void* program;
  std::vector<bespoke_tensor> tensors;
  size_t operands;
};

struct Remote {
  bespoke_engine inner = bespoke::executorch_engine(1);
  std::map<void*, std::vector<uint8_t>> memory;  // by its first byte
  std::vector<Call> waiting;
  long programs = 0, mapped = 0, shared_out = 0;
  size_t most_waiting = 0;
  int32_t threads = 0;                // that runs may use now
  std::vector<int32_t> threads_used;  // by runs, without repetitions
};

constexpr int32_t kThreads = 8;  // that it says it has

Remote& of(void* context) { return *static_cast<Remote*>(context); }

void* keep(Remote& remote, const void* bytes, size_t size) {
  std::vector<uint8_t> made(size + kTail);
  if (bytes) std::memcpy(made.data(), bytes, size);
  void* handle = made.data();
  remote.memory[handle] = std::move(made);
  return handle;
}

int open(void* context, const bespoke_artifact* artifact, void** program, char* message, size_t size) {
  of(context).programs++;
  return of(context).inner.open(of(context).inner.context, artifact, program, message, size);
}

void close(void* context, void* program) {
  of(context).programs--;
  of(context).inner.close(of(context).inner.context, program);
}

int run(void* context, void* program, const bespoke_tensor* const* operands, size_t operand_count, const bespoke_tensor* const* results,
        size_t result_count, char*, size_t) {
  auto& used = of(context).threads_used;
  if (used.empty() || used.back() != of(context).threads) used.push_back(of(context).threads);
  Call call{program, {}, operand_count};
  for (size_t i = 0; i < operand_count + result_count; i++) {
    bespoke_tensor tensor = i < operand_count ? *operands[i] : *results[i - operand_count];
    if (tensor.memory) tensor.data = static_cast<uint8_t*>(tensor.memory) + tensor.offset;
    call.tensors.push_back(tensor);
  }
  of(context).waiting.push_back(std::move(call));
  of(context).most_waiting = std::max(of(context).most_waiting, of(context).waiting.size());
  return 0;
}

int finish(void* context, char* message, size_t size) {
  Remote& remote = of(context);
  for (const Call& call : remote.waiting) {
    std::vector<const bespoke_tensor*> tensors;
    for (const bespoke_tensor& tensor : call.tensors) tensors.push_back(&tensor);
    const int failed = remote.inner.run(remote.inner.context, call.program, tensors.data(), call.operands, tensors.data() + call.operands,
                                        tensors.size() - call.operands, message, size);
    if (failed) return failed;
  }
  remote.waiting.clear();
  return 0;
}

int allocate(void* context, size_t size, void** memory, void**, char*, size_t) {
  *memory = keep(of(context), nullptr, size);
  return 0;
}

void release(void* context, void* memory) { of(context).memory.erase(memory); }

int read(void* context, void* memory, uint64_t offset, void* to, size_t size, char*, size_t) {
  if (!of(context).waiting.empty()) std::exit(3);
  std::memcpy(to, static_cast<uint8_t*>(memory) + offset, size);
  return 0;
}

int write(void* context, void* memory, uint64_t offset, const void* from, size_t size, char*, size_t) {
  if (!of(context).waiting.empty()) std::exit(3);
  std::memcpy(static_cast<uint8_t*>(memory) + offset, from, size);
  return 0;
}

int map_weights(void* context, const void* bytes, size_t size, void** memory, char*, size_t) {
  of(context).mapped++;
  *memory = keep(of(context), bytes, size);
  return 0;
}

void unmap_weights(void* context, void* memory) {
  if (!of(context).waiting.empty()) std::exit(3);
  of(context).memory.erase(memory);
}

int64_t peak_bytes(void* context) {
  int64_t sum = 0;
  for (const auto& entry : of(context).memory) sum += static_cast<int64_t>(entry.second.size());
  return sum + (int64_t{1} << 40);  // a terabyte that only the engine knows of
}

void parallel(void* context, size_t tasks, void (*task)(void* shared, size_t index), void* shared) {
  of(context).shared_out++;
  for (size_t i = tasks; i-- > 0;) task(shared, i);  // in any order
}

int32_t use_threads(void* context, int32_t threads) { return of(context).threads = threads > 0 && threads < kThreads ? threads : kThreads; }

void destroy(void* context) {
  Remote& remote = of(context);
  if (remote.programs || !remote.memory.empty() || !remote.waiting.empty() || remote.most_waiting < 2 || !remote.mapped) std::exit(3);
  remote.inner.destroy(remote.inner.context);
}

bespoke_text text(const char* characters) { return {characters, std::strlen(characters)}; }

}  // namespace

int main(int argc, char** argv) {
  Remote remote;
  bespoke_engine engine{};
  engine.struct_size = sizeof engine;
  engine.target = "executorch";
  engine.context = &remote;
  engine.open = open, engine.run = run, engine.close = close, engine.destroy = destroy, engine.finish = finish;
  engine.allocate = allocate, engine.release = release, engine.read = read, engine.write = write;
  engine.map_weights = map_weights, engine.unmap_weights = unmap_weights, engine.peak_bytes = peak_bytes;
  engine.parallel = parallel, engine.use_threads = use_threads;
  if (argc > 4) engine.struct_size = offsetof(bespoke_engine, runs_graphs) + sizeof engine.runs_graphs;
  bespoke_bundle place{};
  place.struct_size = sizeof place;
  place.path = text(argv[1]);
  bespoke_options options{};
  options.struct_size = sizeof options;
  options.memory_mb = -1;
  options.engine = &engine;
  bespoke_training training{};
  training.struct_size = sizeof training;
  training.method = text(argv[3]);
  bespoke_model* model = nullptr;
  bespoke_error* error = nullptr;
  char* report = nullptr;
  if (bespoke_open(&place, text(argv[2]), &options, nullptr, &model, &error) || bespoke_train(model, &training, nullptr, &report, &error)) {
    std::fprintf(stderr, "%s: %s: got %s; expected %s\n", error->kind, error->subject, error->got, error->expected);
    return 1;
  }
  std::string threads;
  for (const int32_t used : remote.threads_used) threads += (threads.empty() ? "" : ", ") + std::to_string(used);
  std::printf("%s\n{\"shared_out\": %ld, \"threads\": [%s]}\n", report, remote.shared_out, threads.c_str());
  bespoke_free(report);
  bespoke_release(model);  // nothing runs any more
  return 0;
}
#else
int main() { return 2; }
#endif
