// SPDX-License-Identifier: Apache-2.0
// sha256, in lower-case hexadecimal: by the processor's own instructions (SHA-NI, ARMv8) where it has them, else in portable C. Which of
// them, is found out at run time.
#pragma once

#include <memory>
#include <string>

#include "bytes.h"

namespace bespoke {

std::string sha256_hex(Bytes bytes);

class RunningSha256 {
 public:
  RunningSha256();
  ~RunningSha256();
  RunningSha256(const RunningSha256&) = delete;
  RunningSha256& operator=(const RunningSha256&) = delete;

  void add(Bytes bytes);
  std::string finish();  // once

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bespoke
