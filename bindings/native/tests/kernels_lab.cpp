// SPDX-License-Identifier: Apache-2.0
// The kernels in a process of their own, for tests in Python and under an emulator: requests on stdin, results on stdout, both plain
// memory. A request is 12 int64 (see Request) and then its arrays. Scratch is exactly as large as promised and followed by a mark.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "kernels/int4.h"

using namespace bespoke::kernels;

namespace {

enum : int64_t { Sets, Linear, Transposed, Embedding, Head, HeadGradient };
struct Request {
  int64_t operation, set, threads, rows, out, groups, first, columns, start, in_place, times, reserved;
};
constexpr size_t MARK = 4096;  // bytes after the scratch that must stay as they are

void must(bool well, const char* what) {
  if (well) return;
  std::fprintf(stderr, "kernels_lab: %s\n", what);
  std::exit(1);
}

template <class T>
std::vector<T> read_array(int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  must(std::fread(values.data(), sizeof(T), values.size(), stdin) == values.size(), "a request that ends too soon");
  return values;
}

template <class T>
void write_array(const std::vector<T>& values) {
  must(std::fwrite(values.data(), sizeof(T), values.size(), stdout) == values.size(), "nobody reads");
}

// As many threads as asked for, so that their tasks interleave even where the machine has fewer processors.
void run_threads(void* pool, size_t tasks, void (*task)(void*, size_t), void* context) {
  const size_t count = *static_cast<size_t*>(pool);
  std::atomic<size_t> next{0};
  auto work = [&] {
    for (size_t i; (i = next++) < tasks;) task(context, i);
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < count; i++) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
}

struct Scratch {
  explicit Scratch(size_t size) : size(size), memory(static_cast<char*>(std::aligned_alloc(64, (size + MARK + 63) / 64 * 64))) {
    std::memset(memory, 0x7f, size);  // what is read before it is written shows: a very large number
    std::memset(memory + size, 0x55, MARK);
  }
  ~Scratch() {
    for (size_t i = 0; i < MARK; i++) must(memory[size + i] == 0x55, "a kernel wrote beyond its scratch");
    std::free(memory);
  }
  size_t size;
  char* memory;
};

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The shortest of `times` runs goes to the answer as seconds.
template <class F>
void timed(int64_t times, std::vector<double>& shortest, F run) {
  shortest.assign(1, 1e30);
  for (int64_t i = 0; i < times; i++) {
    const double begin = seconds();
    run();
    const double took = seconds() - begin;
    if (took < shortest[0]) shortest[0] = took;
  }
}

void answer(const Request& r) {
  const Table* table = table_of(static_cast<InstructionSet>(r.set));
  must(table != nullptr, "an instruction set that is not here");
  size_t threads = static_cast<size_t>(r.threads);
  const Parallel parallel = r.threads == 1 ? serial : Parallel{run_threads, &threads, threads};
  const bool head = r.operation == Head || r.operation == HeadGradient;
  const size_t bytes = head ? head_scratch_bytes(r.rows, threads) : r.operation == Embedding ? 0 : product_scratch_bytes(threads);
  Scratch scratch(bytes);
  const auto codes = read_array<uint8_t>(r.out * r.groups * 16);
  const auto scales = read_array<uint16_t>(r.out * r.groups);
  const Weight w = {codes.data() + r.first / 2, scales.data() + r.first / 32, r.groups * 16, r.groups, r.out, r.columns};
  std::vector<double> shortest;
  const std::vector<int64_t> size = {static_cast<int64_t>(bytes)};
  if (r.operation == Linear || r.operation == Transposed) {
    const int64_t in = r.operation == Linear ? r.columns : r.out, out = r.operation == Linear ? r.out : r.columns;
    const auto x = read_array<float>(r.rows * in);
    std::vector<float> y(static_cast<size_t>(r.rows * out));
    timed(r.times, shortest, [&] {
      (r.operation == Linear ? linear : linear_transposed)(*table, w, x.data(), in, r.rows, y.data(), out, scratch.memory, parallel);
    });
    write_array(size), write_array(shortest), write_array(y);
  } else if (r.operation == Embedding) {
    const auto tokens = read_array<int64_t>(r.rows);
    std::vector<float> y(static_cast<size_t>(r.rows * r.columns));
    timed(r.times, shortest, [&] { embedding(*table, w, tokens.data(), r.rows, y.data()); });
    write_array(size), write_array(shortest), write_array(y);
  } else {
    const auto h = read_array<float>(r.rows * r.columns);
    const auto targets = read_array<int64_t>(r.rows);
    auto m = read_array<float>(r.rows), l = read_array<float>(r.rows), label = read_array<float>(r.rows);
    auto best = read_array<int64_t>(r.rows);
    auto acc = read_array<float>(r.operation == HeadGradient ? r.rows * r.columns : 0);
    auto m2 = m, l2 = l, label2 = label, acc2 = acc;
    auto best2 = best;
    const bool gradient = r.operation == HeadGradient;
    const HeadState from = {m.data(), l.data(), label.data(), best.data(), gradient ? acc.data() : nullptr};
    const HeadState other = {m2.data(), l2.data(), label2.data(), best2.data(), gradient ? acc2.data() : nullptr};
    const HeadState to = r.in_place ? from : other;
    timed(r.times, shortest, [&] {
      head_chunk(*table, {w, h.data(), targets.data(), r.rows, r.columns, r.start, from, to}, scratch.memory, parallel);
    });
    write_array(size), write_array(shortest);
    write_array(r.in_place ? m : m2), write_array(r.in_place ? l : l2), write_array(r.in_place ? label : label2);
    write_array(r.in_place ? best : best2), write_array(r.in_place ? acc : acc2);
  }
}

}  // namespace

int main() {
  Request r;
  while (std::fread(&r, sizeof r, 1, stdin) == 1) {
    if (r.operation == Sets) {  // one flag for each of Baseline, Avx2, Avx512, Neon, then the one that is chosen
      std::vector<int64_t> sets;
      for (int64_t i = 0; i < 4; i++) sets.push_back(table_of(static_cast<InstructionSet>(i)) != nullptr);
      sets.push_back(static_cast<int64_t>(instruction_set(best_table())));
      write_array(sets);
    } else {
      answer(r);
    }
    std::fflush(stdout);
  }
}
