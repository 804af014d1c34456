// SPDX-License-Identifier: Apache-2.0
// The table of an instruction set whose loops all come from templates over its vectors S.
#pragma once

#include "kernels/loops/attention.h"
#include "kernels/loops/strided.h"

namespace bespoke::kernels {

template <class Loops, class S>
static constexpr Table whole_table(InstructionSet set, decltype(Table::product) product, decltype(Table::vector) vector,
                                   decltype(Table::noise) noise) {
  return {set,
          product,
          vector,
          nullptr,
          Loops::add_lora,
          Loops::row,
          Exponentials<S>::softmax,
          Elements<S>::elementwise,
          Strided<S>::strided,
          Attend<Loops, S>::span,
          Attend<Loops, S>::merge,
          noise};
}

}  // namespace bespoke::kernels
