// SPDX-License-Identifier: Apache-2.0
// JSON where there is no memory: what of the library would end the process then, since it allocates and may not throw.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace bespoke {

using Json = nlohmann::json;

// The library's destructor of a list or object allocates, and where it cannot, the process ends: one that is empty takes nothing.
// For values of bounded depth.
inline void dismantle(Json& value) {
  if (!value.is_structured()) return;
  for (Json& child : value) dismantle(child);
  value.clear();
}

// The library's comparison with a text makes a value of the text.
inline bool is_text(const Json& value, std::string_view text) { return value.is_string() && value.get_ref<const std::string&>() == text; }

class OwnedJson {  // taken apart at the end of its life
 public:
  OwnedJson() = default;
  OwnedJson(Json&& value) : value_(std::move(value)) {}
  OwnedJson(OwnedJson&& other) noexcept : value_(std::move(other.value_)) {}
  OwnedJson& operator=(OwnedJson&& other) noexcept {
    dismantle(value_);
    value_ = std::move(other.value_);
    return *this;
  }
  ~OwnedJson() { dismantle(value_); }

  Json& operator*() { return value_; }
  const Json& operator*() const { return value_; }
  Json* operator->() { return &value_; }
  const Json* operator->() const { return &value_; }

 private:
  Json value_;
};

}  // namespace bespoke
