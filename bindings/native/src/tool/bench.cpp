// SPDX-License-Identifier: Apache-2.0
#include "tool/bench.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "bespoke.h"
#include "kernels/drivers.h"
#include "kernels/features.h"
#include "kernels/int4.h"
#include "tool/bench_cores.h"
#include "tool/bench_model.h"
#include "tool/bench_threads.h"

using Json = nlohmann::ordered_json;

namespace bespoke {

namespace {

using kernels::InstructionSet;

constexpr InstructionSet kBestFirst[] = {InstructionSet::Amx,      InstructionSet::Avx512Vnni, InstructionSet::Avx512, InstructionSet::Avx2,
                                         InstructionSet::NeonI8mm, InstructionSet::NeonDot,    InstructionSet::Neon};
constexpr int64_t kRows[] = {1, 8, 64, 256};

struct Extent {  // of a run
  size_t blocks;
  int64_t vocabulary;
  size_t least_turns, most_turns;
  double seconds;  // of each of its three parts, after which no more turns begin
  size_t least_buffer_bytes;
};
constexpr Extent kWhole = {24, 151936, 3, 9, 15, size_t{256} << 20};
constexpr Extent kQuick = {1, 4096, 1, 1, 1, size_t{32} << 20};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

template <class F>
double seconds_of(F run) {
  const double begin = now();
  run();
  return now() - begin;
}

template <class F>
void take_turns(const Extent& extent, F turn) {
  const double begin = now();
  for (size_t i = 0; i < extent.most_turns && (i < extent.least_turns || now() - begin < extent.seconds); i++) turn();
}

Json spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  const double median = values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
  return {{"median", median}, {"least", values.front()}, {"most", values.back()}, {"turns", values.size()}};
}

// Where a product runs: on one core of a class, or on all cores.
struct BenchPlace {
  std::vector<int> processors;
  std::string cores;
  int64_t threads;
  kernels::Parallel parallel;
};

std::vector<BenchPlace> places_of(const std::vector<CoreClass>& classes, BenchThreads& threads) {
  std::vector<BenchPlace> places;
  std::vector<int> all;
  for (const CoreClass& one : classes) {
    all.insert(all.end(), one.processors.begin(), one.processors.end());
    places.push_back({one.processors, one.name, 1, kernels::serial});
    if (!one.processors.empty()) places.back().processors.resize(1);
  }
  places.push_back({all, "all", static_cast<int64_t>(threads.parallel().threads), threads.parallel()});
  return places;
}

Json place_of(const BenchPlace& place) { return {{"cores", place.cores}, {"threads", place.threads}}; }

// ---- what is measured ----------------------------------------------------------------------------------------------------------

struct Reading {
  const std::vector<uint64_t>& words;
  size_t tasks;
  std::vector<uint64_t> sums;
};

void read_share(void* context, size_t task) {
  auto& reading = *static_cast<Reading*>(context);
  const size_t share = reading.words.size() / reading.tasks;
  const uint64_t* const words = reading.words.data() + task * share;
  uint64_t sum = 0;
  for (size_t i = 0; i < share; i++) sum += words[i];
  reading.sums[task] = sum;  // so that the compiler keeps the loop
}

Json measured_reads(const Extent& extent, const std::vector<BenchPlace>& places, size_t bytes) {
  const std::vector<uint64_t> words(bytes / sizeof(uint64_t), 1);
  std::vector<std::vector<double>> rates(places.size());
  take_turns(extent, [&] {
    for (size_t i = 0; i < places.size(); i++) {
      run_on(places[i].processors);
      Reading reading = {words, static_cast<size_t>(places[i].threads), {}};
      reading.sums.resize(reading.tasks);
      const double took = seconds_of([&] { places[i].parallel.run(places[i].parallel.pool, reading.tasks, read_share, &reading); });
      rates[i].push_back(static_cast<double>(bytes) / took / 1e9);
    }
  });
  Json reads = Json::array();
  for (size_t i = 0; i < places.size(); i++) {
    reads.push_back(place_of(places[i]));
    reads.back()["gigabytes_per_second"] = spread_of(rates[i]);
  }
  return reads;
}

// The sets that this processor has. The baseline is for those that have no other: elsewhere nothing runs on it.
std::vector<const kernels::Table*> tables() {
  std::vector<const kernels::Table*> found;
  for (const InstructionSet set : kBestFirst)
    if (const kernels::Table* table = kernels::table_of(set)) found.push_back(table);
  if (found.empty()) found.push_back(&kernels::best_table());
  return found;
}

struct Product {
  const kernels::Table* table;
  const BenchPlace* place;
  const char* name;
  int64_t rows;
  std::vector<double> rates;  // of a row: weights a second, in units of 10^9; of more: operations
};

std::vector<Product> products_of(const std::vector<BenchPlace>& places) {
  std::vector<Product> products;
  for (const BenchPlace& place : places)  // outermost, so that the thread seldom moves
    for (const kernels::Table* table : tables())
      for (const char* name : {"forward", "transposed", "head"})
        for (const int64_t rows : kRows) products.push_back({table, &place, name, rows, {}});
  return products;
}

void measure(Product& product, BenchModel& model) {
  const std::string name = product.name;
  run_on(product.place->processors);
  const double took = seconds_of([&] {
    if (name == "head") return model.head(*product.table, product.rows, product.place->parallel);
    if (name == "forward") return model.forward(*product.table, product.rows, product.place->parallel);
    model.transposed(*product.table, product.rows, product.place->parallel);
  });
  const double weights = static_cast<double>(name == "head" ? model.head_weights() : model.block_weights());
  const double operations = weights * (name == "head" ? 4.0 : 2.0) * static_cast<double>(product.rows);  // logits and their gradient
  product.rates.push_back((product.rows == 1 ? weights : operations) / took / 1e9);
}

Json measured_products(const Extent& extent, const std::vector<BenchPlace>& places, BenchModel& model) {
  std::vector<Product> products = products_of(places);
  take_turns(extent, [&] {
    for (Product& product : products) measure(product, model);
  });
  Json all = Json::array();
  for (Product& product : products) {
    all.push_back(place_of(*product.place));
    Json& one = all.back();
    one["instruction_set"] = kernels::name_of(kernels::instruction_set(*product.table));
    one["product"] = product.name;
    one["rows"] = product.rows;
    one["unit"] = product.rows == 1 ? "Gweights/s" : "GFLOP/s";
    one["rate"] = spread_of(std::move(product.rates));
  }
  return all;
}

Json measured_step(const Extent& extent, const BenchPlace& all, BenchModel& model) {
  std::vector<double> seconds;
  run_on(all.processors);
  take_turns(extent, [&] { seconds.push_back(seconds_of([&] { model.step(kernels::best_table(), all.parallel); })); });
  return {{"instruction_set", kernels::name_of(kernels::instruction_set(kernels::best_table()))},
          {"threads", all.threads},
          {"blocks", model.blocks()},
          {"vocabulary", model.vocabulary()},
          {"rows", BenchModel::kRows},
          {"seconds", spread_of(seconds)}};
}

// ---- the device ------------------------------------------------------------------------------------------------------------------

Json known_or_null(int64_t number) { return number > 0 ? Json(number) : Json(); }
Json known_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

int64_t memory_bytes() { return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE); }

Json features_used() {
  const kernels::Features& has = kernels::features();
  Json names = Json::array();
  const std::pair<const char*, bool> all[] = {{"avx2", has.avx2}, {"avx512", has.avx512},   {"vnni", has.vnni},
                                              {"amx", has.amx},   {"dotprod", has.dotprod}, {"i8mm", has.i8mm}};
  for (const auto& [name, is_there] : all)
    if (is_there) names.push_back(name);
  return names;
}

Json description_of(const std::vector<CoreClass>& classes) {
  Json cores = Json::array();
  for (const CoreClass& one : classes)
    cores.push_back({{"name", one.name},
                     {"count", one.count},
                     {"capacity", known_or_null(one.capacity)},
                     {"max_mhz", known_or_null(one.max_khz / 1000)},
                     {"part", known_or_null(one.part)}});
  const char* const masked = std::getenv("BESPOKE_MASKED_FEATURES");
  const SystemName system = system_name();
  const double load = load_average();
  return {{"core_version", bespoke_version()},
          {"system", {{"name", system.name}, {"version", system.version}, {"architecture", system.architecture}}},
          {"processor", known_or_null(processor_name())},
          {"features", features_used()},
          {"masked_features", masked ? masked : ""},
          {"cores", cores},
          {"memory_bytes", memory_bytes()},
          {"load_average", load < 0 ? Json() : Json(load)}};
}

}  // namespace

Json bench(bool is_quick) {
  const double begin = now();
  const Extent& extent = is_quick ? kQuick : kWhole;
  const std::vector<CoreClass> classes = core_classes();
  Json report = description_of(classes);
  size_t count = 0;
  for (const CoreClass& one : classes) count += static_cast<size_t>(one.count);
  BenchThreads threads(std::min(count, kernels::THREADS));  // as many as work on one product
  const std::vector<BenchPlace> places = places_of(classes, threads);

  // Twice the largest cache, so that little of it is still there when it is read again.
  const size_t room = static_cast<size_t>(std::max<int64_t>(memory_bytes(), 0)) / 4, cache = static_cast<size_t>(largest_cache_bytes());
  const size_t bytes = is_quick ? extent.least_buffer_bytes : std::min(std::max(2 * cache, extent.least_buffer_bytes), room);
  report["read_buffer_bytes"] = bytes;
  report["reads"] = measured_reads(extent, places, bytes);

  BenchModel model(extent.blocks, extent.vocabulary);
  report["products"] = measured_products(extent, places, model);
  report["step_products"] = measured_step(extent, places.back(), model);
  report["quick"] = is_quick;
  report["seconds"] = now() - begin;
  report["bundle"] = nullptr;  // the SDK measures one
  return report;
}

}  // namespace bespoke
