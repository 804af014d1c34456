// SPDX-License-Identifier: Apache-2.0
// What callers give, checked: nulls, texts, and structs that are older or newer than this library's.
#pragma once

#include <cctype>
#include <cstddef>
#include <cstring>
#include <string>

#include "bespoke.h"
#include "error.h"
#include "format/untrusted_text.h"

namespace bespoke {

inline void need(const void* given, const char* what, const char* expected) {
  if (!given) throw Error(Kind::Config, what, "null", expected, "Give one");
}

inline std::string text_of(bespoke_text given, const char* what) {
  if (!given.size) return {};
  need(given.data, what, "a text");
  std::string text(given.data, given.size);
  if (first_bad_utf8(text) != std::string::npos || text.find('\0') != std::string::npos)
    throw Error(Kind::Config, what, in_quotes(text), "UTF-8 without NUL", "Correct the text");
  return text;
}

// A path. "file:///place" would be a folder named "file:", here.
inline std::string path_of(bespoke_text given, const char* what) {
  std::string path = text_of(given, what);
  const size_t end = path.find("://");
  const bool is_url = end != std::string::npos && end > 0 && std::isalpha(static_cast<unsigned char>(path[0])) &&
                      path.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-") == end;
  if (is_url) throw Error(Kind::Config, what, "a URL, " + in_quotes(path), "a path", "Give the path in it, without the scheme");
  return path;
}

// Whether a struct has room to grow into that is set.
template <class Struct>
auto reserves(const Struct& given, int) -> decltype(given.reserved != 0) {
  return given.reserved != 0;
}
template <class Struct>
bool reserves(const Struct&, long) {
  return false;
}

// A struct as this library knows it. `first` is its size in version 1.0: up to its last field then. What the caller's does not have
// is 0; what this library does not know must be.
template <class Struct>
Struct taken(const Struct* given, size_t first, const char* what) {
  Struct known{};
  if (!given) return known;
  const size_t size = given->struct_size;
  const auto refuse = [&](const std::string& got, const std::string& expected) {
    throw Error(Kind::Config, what, got, expected, "Set struct_size to sizeof, and use a library that is as new as the header");
  };
  constexpr size_t most = 4096;  // more is no size of a struct
  if (size < first || size > most) refuse("struct_size " + std::to_string(size), std::to_string(first) + " to " + std::to_string(most));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof known; i < size; i++)
    if (bytes[i]) refuse("a field behind byte " + std::to_string(sizeof known) + " that is set", "fields that this library has");
  std::memcpy(static_cast<void*>(&known), given, size < sizeof known ? size : sizeof known);
  if (reserves(known, 0)) refuse("`reserved` that is set", "0");
  return known;
}

#define BESPOKE_FIRST(type, field) (offsetof(type, field) + sizeof(type::field))

#ifndef BESPOKE_TEST_OF_GROWTH  // which compiles this library with structs that end in other fields
// A struct that ends in padding would let a later library read a field out of it that an older client never wrote.
#define BESPOKE_ENDS_WITH(type, field) \
  static_assert(sizeof(void*) != 8 || BESPOKE_FIRST(type, field) == sizeof(type), #type " ends in padding: give it `reserved`")
BESPOKE_ENDS_WITH(bespoke_bundle, reserved);
BESPOKE_ENDS_WITH(bespoke_options, reserved);
BESPOKE_ENDS_WITH(bespoke_engine, use_threads);
BESPOKE_ENDS_WITH(bespoke_example, use);
BESPOKE_ENDS_WITH(bespoke_training, new_run);
BESPOKE_ENDS_WITH(bespoke_call, busy_seconds);
BESPOKE_ENDS_WITH(bespoke_generation, reserved);
BESPOKE_ENDS_WITH(bespoke_piece, reserved);
BESPOKE_ENDS_WITH(bespoke_progress, footprint_bytes);
BESPOKE_ENDS_WITH(bespoke_error, references);
BESPOKE_ENDS_WITH(bespoke_tensor, data);
BESPOKE_ENDS_WITH(bespoke_artifact, cache);
#endif

}  // namespace bespoke
