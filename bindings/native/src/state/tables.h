// SPDX-License-Identifier: Apache-2.0
// The tables of state.sqlite (docs/reference/state_format.md), and whether a database is one of ours.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "state/records.h"

namespace bespoke {

class Database;

class TensorShapes {  // name -> shape of every piece of an adapter, or of all that a method keeps, in few bytes a tensor
 public:
  explicit TensorShapes(const std::vector<StateTensor>& tensors);

  size_t size() const { return pieces_.size(); }
  StateTensor piece(size_t index) const;      // in the order of names
  int64_t find(std::string_view name) const;  // -1: no such piece
  bool owns(std::string_view state) const;    // it has the name of optimizer state of one of these: `<piece>.<state>`
  bool has_shape_of(size_t index, const StateTensor& tensor) const;
  std::string json() const;  // as the database keeps it

 private:
  struct Piece {
    uint32_t name, name_size, shape;
    int32_t rank;
  };
  std::string names_;
  std::vector<int64_t> extents_;
  std::vector<Piece> pieces_;
};

void create_schema(Database& database, const std::string& base_sha256, const std::string& shapes_json);  // inside a transaction
void check_schema(Database& database);    // refuses a newer version, a foreign schema, a damaged file: StateError
void migrate_schema(Database& database);  // from the version that was checked to this library's, in one transaction
void check_base(Database& database, const std::string& base_sha256, const std::string& shapes_json);

}  // namespace bespoke
