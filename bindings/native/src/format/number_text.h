// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace bespoke {

std::string repr_of(double number);  // as Python's repr: shortest that reads back; "nan", "inf"

}  // namespace bespoke
