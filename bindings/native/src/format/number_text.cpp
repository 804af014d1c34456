// SPDX-License-Identifier: Apache-2.0
#include "format/number_text.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace bespoke {

std::string repr_of(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  char shortest[32];  // [-]d.ddde[+-]xx
  auto end = std::to_chars(shortest, shortest + sizeof shortest, number, std::chars_format::scientific).ptr;
  std::string text, digits;
  const char* at = shortest;
  if (*at == '-') text += *at++;
  for (; *at != 'e'; at++)
    if (*at != '.') digits += *at;
  at++;
  if (*at == '+') at++;
  int exponent = 0;
  std::from_chars(at, end, exponent);
  // Python writes an exponent from 1e16 on and below 1e-4.
  if (exponent < -4 || exponent >= 16) {
    text += digits[0];
    if (digits.size() > 1) text += "." + digits.substr(1);
    char written[16];
    snprintf(written, sizeof written, "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
    return text + written;
  }
  if (exponent < 0) return text + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return text + digits + std::string(whole - digits.size(), '0') + ".0";
  return text + digits.substr(0, whole) + "." + digits.substr(whole);
}

}  // namespace bespoke
