// SPDX-License-Identifier: Apache-2.0
// How exact the products of this thread's runs are: an engine's `run` has no room for it.
#pragma once

#include "kernels/int4.h"

namespace bespoke::kernels {

inline thread_local Precision precision_of_run = Precision::Exact;

// While it lives.
class RunsWith {
 public:
  explicit RunsWith(Precision precision) { precision_of_run = precision; }
  RunsWith(const RunsWith&) = delete;
  ~RunsWith() { precision_of_run = Precision::Exact; }
};

}  // namespace bespoke::kernels
