// SPDX-License-Identifier: Apache-2.0
#include "api/handles.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

#include "platform/fork.h"

namespace bespoke {

namespace {

constexpr uintptr_t kStride = 16;  // looks aligned, as a pointer does

template <class Object>
using Open = std::unordered_map<uintptr_t, std::shared_ptr<Object>>;

struct Handles {
  uintptr_t last = 0;
  Open<OpenModel> models;
  Open<OpenSession> sessions;
  std::vector<std::weak_ptr<OpenModel>> released;
};

Handles& handles() REQUIRES(held_over_forks()) {
  static Handles& made = *new Handles;  // never destroyed: a fork that ends must not close what is its parent's
  return made;
}

template <class Object>
uintptr_t add(Open<Object> Handles::* open, std::shared_ptr<Object> object) {
  const MutexLock held(held_over_forks());
  Handles& all = handles();
  all.last += kStride;
  (all.*open).emplace(all.last, std::move(object));
  return all.last;
}

template <class Object>
std::shared_ptr<Object> find(Open<Object> Handles::* open, const void* handle, bool take) {
  const MutexLock held(held_over_forks());
  auto& objects = handles().*open;
  const auto at = objects.find(reinterpret_cast<uintptr_t>(handle));
  if (at == objects.end()) return nullptr;
  std::shared_ptr<Object> object = take ? std::move(at->second) : at->second;
  if (take) objects.erase(at);
  return object;
}

template <class Object>
std::shared_ptr<Object> found(Open<Object> Handles::* open, const void* handle, const char* what, const char* opened_by) {
  need(handle, what, opened_by);
  std::shared_ptr<Object> object = find(open, handle, false);
  if (!object)
    throw Error(Kind::State, std::string("the ") + what, "a handle that is not open", std::string(opened_by) + " and that was not closed",
                std::string("Open another ") + what);
  return object;
}

}  // namespace

bespoke_model* handle_of(std::shared_ptr<OpenModel> model) {
  return reinterpret_cast<bespoke_model*>(add(&Handles::models, std::move(model)));
}

bespoke_session* handle_of(std::shared_ptr<OpenSession> session) {
  return reinterpret_cast<bespoke_session*>(add(&Handles::sessions, std::move(session)));
}

std::shared_ptr<OpenModel> found(bespoke_model* model) { return found(&Handles::models, model, "model", "one that bespoke_open gave"); }

std::shared_ptr<OpenSession> found(bespoke_session* session) {
  return found(&Handles::sessions, session, "session", "one that bespoke_session_open gave");
}

std::shared_ptr<OpenModel> taken_out(bespoke_model* model) { return find(&Handles::models, model, true); }
std::shared_ptr<OpenSession> taken_out(bespoke_session* session) { return find(&Handles::sessions, session, true); }

void note_released(const std::shared_ptr<OpenModel>& model) {
  const MutexLock held(held_over_forks());
  auto& released = handles().released;
  released.erase(std::remove_if(released.begin(), released.end(), [](const auto& one) { return one.expired(); }), released.end());
  released.push_back(model);
}

void check_none_ends(const std::string& state) {
  std::vector<std::shared_ptr<OpenModel>> released;
  {
    const MutexLock held(held_over_forks());
    for (const auto& one : handles().released)
      if (auto model = one.lock()) released.push_back(std::move(model));
  }
  std::error_code none;  // a folder that is not there yet
  for (const auto& model : released)
    if (model->is_of_this_process() && model->still_ends() && std::filesystem::equivalent(model->state(), state, none))
      throw Error(Kind::Busy, state, "a model that was released and whose last call has not ended yet", "a state that nobody has open",
                  "Open it again in a moment");
}

void give(char** place, const std::string& text) {
  if (!place) return;
  *place = static_cast<char*>(std::malloc(text.size() + 1));
  if (!*place) throw std::bad_alloc();
  std::memcpy(*place, text.c_str(), text.size() + 1);
}

}  // namespace bespoke
