// SPDX-License-Identifier: Apache-2.0
// What the core rests on in the sources of others: how SQLite was compiled, and signatures by libsodium's code without libsodium's start.
#include <doctest/doctest.h>
#include <sodium/crypto_sign_ed25519.h>
#include <sqlite3.h>

#include <cstdint>
#include <string>
#include <vector>

namespace {

std::vector<uint8_t> bytes_of(const std::string& digits) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < digits.size(); i += 2) bytes.push_back(static_cast<uint8_t>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  return bytes;
}

}  // namespace

TEST_CASE("SQLite is the one whose header was compiled, with the options that the state rests on") {
  CHECK(std::string(sqlite3_libversion()) == SQLITE_VERSION);
  CHECK(std::string(sqlite3_sourceid()) == SQLITE_SOURCE_ID);
  for (const char* option : {"THREADSAFE=1", "SECURE_DELETE", "TEMP_STORE=3", "DQS=0", "OMIT_LOAD_EXTENSION"}) {
    CAPTURE(option);
    CHECK(sqlite3_compileoption_used(option));
  }
}

TEST_CASE("A string in double quotes is an error and no text") {
  sqlite3* connection = nullptr;
  REQUIRE(sqlite3_open(":memory:", &connection) == SQLITE_OK);
  CHECK(sqlite3_exec(connection, "SELECT \"misspelt\"", nullptr, nullptr, nullptr) == SQLITE_ERROR);
  sqlite3_close(connection);
}

TEST_CASE("A signature of RFC 8032, section 7.1, test 3") {
  const auto key = bytes_of("fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025");
  auto message = bytes_of("af82");
  auto signature = bytes_of(
      "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a");
  REQUIRE(signature.size() == crypto_sign_ed25519_BYTES);
  const auto verified = [&] {
    return crypto_sign_ed25519_verify_detached(signature.data(), message.data(), message.size(), key.data()) == 0;
  };
  CHECK(verified());
  message[1] ^= 1;
  CHECK_FALSE(verified());
  message[1] ^= 1;
  for (const size_t at : {size_t{0}, size_t{31}, size_t{32}, size_t{62}}) {
    CAPTURE(at);
    signature[at] ^= 1;
    CHECK_FALSE(verified());
    signature[at] ^= 1;
  }
}
