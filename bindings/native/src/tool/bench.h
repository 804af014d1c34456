// SPDX-License-Identifier: Apache-2.0
// What this device can do: rates of the kernels on each instruction set and class of cores, read bandwidth, and seconds of a training
// step's products (BenchReport in sdk/bespoke/rules/bench_report.py, bindings/schema/bench_report.schema.json). It needs no bundle:
//
//   bespoke-core bench            prints the report, also in `adb shell` on a phone
//   bespoke-core bench --quick    a few turns and a small model: whether it works, not how fast the device is
//
// As a request it is {"verb": "bench", "quick": true}.
#pragma once

#include <nlohmann/json.hpp>

namespace bespoke {

nlohmann::ordered_json bench(bool is_quick);

}  // namespace bespoke
