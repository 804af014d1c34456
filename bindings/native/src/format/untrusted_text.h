// SPDX-License-Identifier: Apache-2.0
// Text from outside: whether it is UTF-8, what of it may stand on a terminal, what may name a file of a bundle.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bespoke {

// Position of the first byte that is no UTF-8 (overlong forms and surrogates are none); npos if all of it is.
size_t first_bad_utf8(std::string_view text);

// Characters of a sound UTF-8 text: what the schemas count.
size_t count_characters(std::string_view text);

// No controls, formatting marks, private use, or spaces but the plain one. Characters that no version of Unicode has yet are taken.
bool is_printable(std::string_view text);

// 'text' with everything that is not printable ASCII escaped, as Python's ascii() shows it; at most `limit` bytes of it.
std::string in_quotes(std::string_view text, size_t limit = 80);

// `text` as it may stand on a terminal and in a log, as Python's sdk/bespoke/errors.py has it: what is not printable is escaped, and of a
// long text the middle is left out.
constexpr size_t kMaxPartBytes = 1000;  // of each part of an error
std::string printable(std::string text, size_t most = kMaxPartBytes);

// Why `name` cannot name a file of a bundle; null if it can. Letters of ASCII only, no component begins with a dot.
const char* file_name_problem(std::string_view name);

std::string lower_case(std::string_view text);  // of ASCII

// manifest.json, its sum and the signature: beside what the manifest lists.
bool is_reserved(std::string_view name);

}  // namespace bespoke
