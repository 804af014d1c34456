// SPDX-License-Identifier: Apache-2.0
// The kernels in a process of their own, for tests in Python and under an emulator: requests on stdin, results on stdout, both plain
// memory. A request is 12 int64 (see Request) and then its arrays. Workspace is exactly as large as promised and followed by a mark.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "kernels/int4.h"
#include "tool/bench_threads.h"

using namespace bespoke::kernels;

namespace {

enum : int64_t { Sets, Linear, Transposed, Embedding, Head, HeadGradient, Measure, Steps, Attend, OneLoop, Together, Rounded };
struct Request {
  int64_t operation, set, threads, rows, out, groups, first, columns, start, in_place, times, reserved;
};
constexpr size_t MARK = 4096;  // bytes after the workspace that must stay as they are

void must(bool well, const char* what) {
  if (well) return;
  std::fprintf(stderr, "kernels_lab: %s\n", what);
  std::exit(1);
}

template <class T>
std::vector<T> read_array(int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  must(values.empty() || std::fread(values.data(), sizeof(T), values.size(), stdin) == values.size(), "a request that ends too soon");
  return values;
}

template <class T>
void write_array(const std::vector<T>& values) {
  must(values.empty() || std::fwrite(values.data(), sizeof(T), values.size(), stdout) == values.size(), "nobody reads");
}

struct Workspace {
  explicit Workspace(size_t size) : size(size), memory(static_cast<char*>(std::aligned_alloc(64, (size + MARK + 63) / 64 * 64))) {
    std::memset(memory, 0x7f, size);  // what is read before it is written shows: a very large number
    std::memset(memory + size, 0x55, MARK);
  }
  ~Workspace() {
    for (size_t i = 0; i < MARK; i++) must(memory[size + i] == 0x55, "a kernel wrote beyond its workspace");
    std::free(memory);
  }
  size_t size;
  char* memory;
};

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

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

// As many threads as asked for, so that their tasks interleave even where the machine has fewer processors. They stay, since starting
// one takes longer than a small product.
Parallel pool(size_t threads) {
  static std::map<size_t, std::unique_ptr<bespoke::BenchThreads>> pools;
  if (threads == 1) return serial;
  std::unique_ptr<bespoke::BenchThreads>& found = pools[threads];
  if (!found) found = std::make_unique<bespoke::BenchThreads>(threads);
  return found->parallel();
}

// Random weights of one shape, in more copies than the caches hold, as a model's layers are.
struct Copies {
  std::vector<std::vector<uint8_t>> codes;
  std::vector<uint16_t> scales;
  size_t turn = 0;
};

// x W^T, exact or rounded, or g W, as `operation` says.
void multiply(int64_t operation, const Table& table, const Weight& w, const std::vector<float>& x, int64_t rows, std::vector<float>& y,
              void* workspace, const Parallel& parallel, const Lora* lora) {
  if (operation == Transposed)
    linear_transposed(table, w, x.data(), w.out, rows, y.data(), w.columns, workspace, parallel, lora);
  else
    linear(table, w, x.data(), w.columns, rows, y.data(), w.out, workspace, parallel, lora,
           operation == Rounded ? Precision::Rounded : Precision::Exact);
}

// Seconds of one product: r.start says which (Linear, Transposed, Rounded, HeadGradient).
void measure(const Request& r) {
  static std::map<std::pair<int64_t, int64_t>, Copies> all;
  Copies& copies = all[{r.out, r.columns}];
  std::mt19937 random(1);
  const size_t bytes = static_cast<size_t>(r.out * r.groups * 16);
  if (copies.codes.empty()) {
    copies.codes.assign(std::max<size_t>(2, 24000000 / bytes), std::vector<uint8_t>(bytes));
    for (auto& codes : copies.codes)
      for (uint8_t& code : codes) code = static_cast<uint8_t>(random());
    copies.scales.assign(static_cast<size_t>(r.out * r.groups), 0x2000);
  }
  const Weight w = {
      copies.codes[copies.turn++ % copies.codes.size()].data(), copies.scales.data(), r.groups * 16, r.groups, r.out, r.columns};
  const Parallel parallel = pool(static_cast<size_t>(r.threads));
  const Table& table = *table_of(static_cast<InstructionSet>(r.set));
  std::vector<float> x(static_cast<size_t>(r.rows * std::max(r.out, r.columns))), y(x.size());
  for (float& value : x) value = static_cast<float>(random() % 2001) / 1000 - 1;
  Workspace workspace(head_workspace_bytes(r.rows));
  std::vector<double> took;
  if (r.start == HeadGradient) {
    std::vector<float> m(r.rows, -1e30f), l(r.rows), label(r.rows);
    std::vector<int64_t> targets(r.rows), best(r.rows);
    const HeadState state = {m.data(), l.data(), label.data(), best.data(), y.data()};
    timed(r.times, took,
          [&] { head_chunk(table, {w, x.data(), targets.data(), r.rows, r.columns, 0, state, state}, workspace.memory, parallel); });
  } else {
    timed(r.times, took, [&] { multiply(r.start, table, w, x, r.rows, y, workspace.memory, parallel, nullptr); });
  }
  write_array(took);
}

// Elementwise steps on `rows` elements: `out` inputs, `groups` outputs, `first` steps of five numbers each.
void answer_steps(const Request& r) {
  const Table* table = table_of(static_cast<InstructionSet>(r.set));
  must(table != nullptr, "an instruction set that is not here");
  const auto fields = read_array<int64_t>(5 * r.first);
  std::vector<ElementwiseStep> steps;
  for (size_t i = 0; i < fields.size(); i += 5) {
    const auto bits = static_cast<uint32_t>(fields[i + 4]);
    steps.push_back({static_cast<Elementwise>(fields[i]), fields[i + 1], fields[i + 2], fields[i + 3], 0});
    std::memcpy(&steps.back().number, &bits, sizeof bits);
  }
  std::vector<std::vector<float>> inputs, outputs;
  for (int64_t i = 0; i < r.out; i++) inputs.push_back(read_array<float>(r.rows));
  outputs.assign(static_cast<size_t>(r.groups), std::vector<float>(static_cast<size_t>(r.rows)));
  std::vector<const float*> from;
  std::vector<float*> to;
  for (auto& values : inputs) from.push_back(values.data());
  for (auto& values : outputs) to.push_back(values.data());
  elementwise(*table, steps.data(), r.first, from.data(), r.out, to.data(), r.groups, r.rows, pool(static_cast<size_t>(r.threads)));
  for (auto& values : outputs) write_array(values);
}

// A loop: its operation in `first`, four dimensions, and of each operand the first element and four strides. `rows` floats of the result,
// which begin as numbers that are none, `out` and `groups` of the operands.
void answer_loop(const Request& r) {
  const Table* table = table_of(static_cast<InstructionSet>(r.set));
  must(table != nullptr, "an instruction set that is not here");
  const auto fields = read_array<int64_t>(19);
  std::vector<float> to(static_cast<size_t>(r.rows), std::nanf(""));
  auto a = read_array<float>(r.out), b = read_array<float>(r.groups);
  float* data[] = {to.data(), a.data(), b.data()};
  StridedLoop loop{static_cast<Loop>(r.first), {}, {}, {}, {}};
  std::copy_n(fields.begin(), 4, loop.dims);
  StridedOperand* operands[] = {&loop.to, &loop.a, &loop.b};
  for (size_t o = 0; o < 3; o++) {
    const auto field = fields.begin() + 4 + static_cast<std::ptrdiff_t>(5 * o);
    operands[o]->data = data[o] + *field;
    std::copy_n(field + 1, 4, operands[o]->strides);
  }
  strided(*table, loop);
  write_array(to);
}

// Products of the same rows: `out` of them, each with `groups` groups. Adapters of rank `reserved`, b transposed, if there are any.
void answer_together(const Request& r) {
  const Table* table = table_of(static_cast<InstructionSet>(r.set));
  must(table != nullptr, "an instruction set that is not here");
  const auto x = read_array<float>(r.rows * r.columns);
  struct One {
    std::vector<uint8_t> codes;
    std::vector<uint16_t> scales;
    std::vector<float> h, b, y;
    Lora lora;
  };
  std::vector<One> each(static_cast<size_t>(r.out));
  std::vector<bespoke::kernels::Linear> products;
  for (One& one : each) {
    const int64_t out = read_array<int64_t>(1)[0];
    one.codes = read_array<uint8_t>(out * r.groups * 16), one.scales = read_array<uint16_t>(out * r.groups);
    one.h = read_array<float>(r.rows * r.reserved), one.b = read_array<float>(r.reserved * out);
    one.y.resize(static_cast<size_t>(r.rows * out));
    one.lora = {one.h.data(), one.b.data(), r.reserved, r.reserved, true, 0.25f};
    products.push_back(
        {{one.codes.data(), one.scales.data(), r.groups * 16, r.groups, out, r.columns}, one.y.data(), r.reserved ? &one.lora : nullptr});
  }
  Workspace workspace(product_workspace_bytes());
  linears(*table, products.data(), products.size(), x.data(), r.rows, workspace.memory, pool(static_cast<size_t>(r.threads)));
  for (const One& one : each) write_array(one.y);
}

// Attention of `rows` positions from `start` on: `out` keys, `groups` heads, `first` key-value heads of `columns` numbers, a window of
// `in_place` positions, and the bits of the scale in `reserved`.
void answer_attention(const Request& r) {
  const Table* table = table_of(static_cast<InstructionSet>(r.set));
  must(table != nullptr, "an instruction set that is not here");
  const auto q = read_array<float>(r.rows * r.groups * r.columns);
  const auto k = read_array<float>(r.out * r.first * r.columns), v = read_array<float>(r.out * r.first * r.columns);
  std::vector<float> result(q.size());
  Attention a = {q.data(), k.data(), v.data(), result.data(), r.rows, r.out, r.groups, r.first, r.columns, r.start, r.in_place, 0};
  const auto bits = static_cast<uint32_t>(r.reserved);
  std::memcpy(&a.scale, &bits, sizeof bits);
  const size_t bytes = attention_workspace_bytes(a.rows, a.keys, a.heads, a.kv_heads, a.width);
  Workspace workspace(bytes);
  std::vector<double> shortest;
  timed(r.times, shortest, [&] { attention(*table, a, workspace.memory, pool(static_cast<size_t>(r.threads))); });
  write_array(std::vector<int64_t>{static_cast<int64_t>(bytes)}), write_array(shortest), write_array(result);
}

void answer(const Request& r) {
  const Table* table = table_of(static_cast<InstructionSet>(r.set));
  must(table != nullptr, "an instruction set that is not here");
  const size_t threads = static_cast<size_t>(r.threads);
  const Parallel parallel = pool(threads);
  const bool head = r.operation == Head || r.operation == HeadGradient;
  const size_t bytes = head ? head_workspace_bytes(r.rows) : r.operation == Embedding ? 0 : product_workspace_bytes();
  Workspace workspace(bytes);
  const auto codes = read_array<uint8_t>(r.out * r.groups * 16);
  const auto scales = read_array<uint16_t>(r.out * r.groups);
  const Weight w = {codes.data() + r.first / 2, scales.data() + r.first / 32, r.groups * 16, r.groups, r.out, r.columns};
  std::vector<double> shortest;
  const std::vector<int64_t> size = {static_cast<int64_t>(bytes)};
  if (r.operation == Linear || r.operation == Transposed || r.operation == Rounded) {
    const bool forward = r.operation != Transposed;
    const int64_t in = forward ? r.columns : r.out, out = forward ? r.out : r.columns;
    const auto x = read_array<float>(r.rows * in);
    // An adapter of rank `reserved`, if there is one: b transposed where `in_place`, the bits of the factor in `start`.
    const int64_t rank = r.reserved;
    const auto h = read_array<float>(r.rows * rank), b = read_array<float>(rank * out);
    Lora lora = {h.data(), b.data(), rank, r.in_place ? rank : out, r.in_place != 0, 0};
    const auto bits = static_cast<uint32_t>(r.start);
    std::memcpy(&lora.factor, &bits, sizeof bits);
    std::vector<float> y(static_cast<size_t>(r.rows * out));
    const Lora* adapter = rank ? &lora : nullptr;
    timed(r.times, shortest, [&] { multiply(r.operation, *table, w, x, r.rows, y, workspace.memory, parallel, adapter); });
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
    timed(r.times, shortest,
          [&] { head_chunk(*table, {w, h.data(), targets.data(), r.rows, r.columns, r.start, from, to}, workspace.memory, parallel); });
    write_array(size), write_array(shortest);
    write_array(r.in_place ? m : m2), write_array(r.in_place ? l : l2), write_array(r.in_place ? label : label2);
    write_array(r.in_place ? best : best2), write_array(r.in_place ? acc : acc2);
  }
}

}  // namespace

int main() {
  Request r;
  while (std::fread(&r, sizeof r, 1, stdin) == 1) {
    if (r.operation == Sets) {  // one flag for each, in the order of InstructionSet, then the one that is chosen
      std::vector<int64_t> sets;
      for (int64_t i = 0; i <= static_cast<int64_t>(InstructionSet::Avx512Vnni); i++)
        sets.push_back(table_of(static_cast<InstructionSet>(i)) != nullptr);
      sets.push_back(static_cast<int64_t>(instruction_set(best_table())));
      write_array(sets);
    } else if (r.operation == Measure) {
      measure(r);
    } else if (r.operation == Steps) {
      answer_steps(r);
    } else if (r.operation == Attend) {
      answer_attention(r);
    } else if (r.operation == Together) {
      answer_together(r);
    } else if (r.operation == OneLoop) {
      answer_loop(r);
    } else {
      answer(r);
    }
    std::fflush(stdout);
  }
}
