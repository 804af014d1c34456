// SPDX-License-Identifier: Apache-2.0
// Pages are read and written through `sqlite_dbpage`, so they pass SQLite's cache and its log like any other change, in little memory.
// Their format: https://sqlite.org/fileformat2.html, sections 1.5 (the freelist), 1.6 (B-tree pages) and 1.7 (overflow pages).
#include "state/scrub.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "state/database.h"
#include "state/errors.h"

namespace bespoke {

namespace {

constexpr size_t kFileHeader = 100;                 // at the start of page 1
constexpr size_t kFirstTrunk = 32, kReserved = 20;  // in it
constexpr size_t kLeastCell = 4;                    // what SQLite takes for a smaller one
enum PageType : uint8_t { interior_index = 2, interior_table = 5, leaf_index = 10, leaf_table = 13 };

class Page {
 public:
  Page(Database& database, uint32_t number) : number_(number), subject_(database.subject()) {
    Statement read(database, "SELECT data FROM sqlite_dbpage WHERE pgno = ?");
    if (!read.bind(int64_t{number}).step()) refuse("no such page");
    const Bytes found = read.blob(0);
    bytes_.assign(found.data, found.data + found.size);
  }

  uint8_t byte(size_t at) const {
    if (at >= bytes_.size()) refuse("an offset beyond its end");
    return bytes_[at];
  }
  uint32_t two(size_t at) const { return uint32_t{byte(at)} << 8 | byte(at + 1); }
  uint32_t four(size_t at) const { return two(at) << 16 | two(at + 2); }
  uint64_t varint(size_t& at) const {  // moves `at` behind it
    uint64_t value = 0;
    for (int i = 0; i < 8; i++) {
      const uint8_t next = byte(at++);
      value = value << 7 | (next & 0x7f);
      if (!(next & 0x80)) return value;
    }
    return value << 8 | byte(at++);
  }
  size_t size() const { return bytes_.size(); }

  void zero(size_t begin, size_t end) {
    if (begin > end || end > bytes_.size()) refuse("parts that overlap");
    for (size_t at = begin; at < end; at++)
      if (bytes_[at]) bytes_[at] = 0, is_changed_ = true;
  }

  void save(Database& database) const {
    if (!is_changed_) return;
    Statement(database, "UPDATE sqlite_dbpage SET data = ? WHERE pgno = ?")
        .bind(Bytes{bytes_.data(), bytes_.size()})
        .bind(int64_t{number_})
        .run();
  }

  [[noreturn]] void refuse(const std::string& got) const {
    throw damaged(subject_, "page " + std::to_string(number_) + ": " + got, "a page as SQLite writes it");
  }

 private:
  const uint32_t number_;
  const std::string& subject_;
  std::vector<uint8_t> bytes_;
  bool is_changed_ = false;
};

class Scrubber {
 public:
  explicit Scrubber(Database& database) : database_(database), seen_(static_cast<size_t>(database.number("PRAGMA page_count")) + 1) {
    const Page first(database, 1);
    usable_ = first.size() - first.byte(kReserved);
  }

  void tree(uint32_t root) {
    std::vector<uint32_t> left = {root};
    while (!left.empty()) {
      const uint32_t number = left.back();
      left.pop_back();
      Page page = taken(number);
      tree_page(page, number == 1 ? kFileHeader : 0, left);
      page.save(database_);
    }
  }

  void free_pages() {
    for (uint32_t trunk = Page(database_, 1).four(kFirstTrunk); trunk;) {
      Page page = taken(trunk);
      trunk = page.four(0);
      const size_t leaves = page.four(4);
      if (leaves > usable_ / 4 - 2) page.refuse("a freelist of " + std::to_string(leaves) + " pages");
      for (size_t i = 0; i < leaves; i++) {
        Page leaf = taken(page.four(8 + 4 * i));
        leaf.zero(0, usable_);
        leaf.save(database_);
      }
      page.zero(8 + 4 * leaves, usable_);
      page.save(database_);
    }
  }

 private:
  using Range = std::pair<size_t, size_t>;  // first byte, and the one behind the last

  // A page that no other part of the database has claimed: what is damaged may run in circles.
  Page taken(uint32_t number) {
    Page page(database_, number);
    if (number >= seen_.size() || seen_[number]) page.refuse("more than one use");
    seen_[number] = true;
    return page;
  }

  void tree_page(Page& page, size_t header, std::vector<uint32_t>& children) {
    const uint8_t type = page.byte(header);
    const bool is_interior = type == interior_index || type == interior_table;
    if (!is_interior && type != leaf_index && type != leaf_table) page.refuse("type " + std::to_string(type));
    const size_t cells = page.two(header + 3), pointers = header + (is_interior ? 12 : 8);
    std::vector<Range> used = {{0, pointers + 2 * cells}};
    for (size_t i = 0; i < cells; i++) {
      const size_t cell = page.two(pointers + 2 * i);
      used.push_back({cell, cell + std::max(kLeastCell, cell_size(page, type, cell))});
      if (is_interior) children.push_back(page.four(cell));
    }
    if (is_interior) children.push_back(page.four(header + 8));
    size_t block = page.two(header + 1);
    for (size_t next; block; block = next) {  // of the list of free blocks, which ascends, the first four bytes are a link and a size
      used.push_back({block, block + 4});
      next = page.two(block);
      if (next && next <= block) page.refuse("free blocks that do not ascend");
    }
    std::sort(used.begin(), used.end());
    for (size_t i = 1; i < used.size(); i++) page.zero(used[i - 1].second, used[i].first);
    page.zero(used.back().second, usable_);
  }

  // Of a cell without its overflow, whose last page is scrubbed.
  size_t cell_size(Page& page, uint8_t type, size_t cell) {
    size_t at = cell + (type == interior_index || type == interior_table ? 4 : 0);
    if (type == interior_table) {
      page.varint(at);
      return at - cell;
    }
    const uint64_t payload = page.varint(at);
    if (type == leaf_table) page.varint(at);
    const size_t most = type == leaf_table ? usable_ - 35 : (usable_ - 12) * 64 / 255 - 23;
    if (payload <= most) return at - cell + payload;
    const size_t least = (usable_ - 12) * 32 / 255 - 23, wanted = least + (payload - least) % (usable_ - 4);
    const size_t local = wanted <= most ? wanted : least;
    overflow(page.four(at + local), payload - local);
    return at - cell + local + 4;
  }

  void overflow(uint32_t number, uint64_t left) {
    for (; number; left -= std::min<uint64_t>(left, usable_ - 4)) {
      Page page = taken(number);
      number = page.four(0);
      if (number) continue;
      page.zero(4 + std::min<uint64_t>(left, usable_ - 4), usable_);
      page.save(database_);
    }
  }

  Database& database_;
  std::vector<bool> seen_;
  size_t usable_;  // bytes of each page
};

}  // namespace

void zero_free_space(Database& database) {
  std::vector<uint32_t> roots = {1};  // of the schema
  {
    Statement statement(database, "SELECT rootpage FROM sqlite_schema WHERE rootpage > 0");
    while (statement.step()) roots.push_back(static_cast<uint32_t>(statement.number(0)));
  }
  Scrubber scrubber(database);
  for (const uint32_t root : roots) scrubber.tree(root);
  scrubber.free_pages();
}

}  // namespace bespoke
