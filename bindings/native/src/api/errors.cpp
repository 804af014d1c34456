// SPDX-License-Identifier: Apache-2.0
#include "api/errors.h"

#include <cstdlib>
#include <cstring>
#include <string>

namespace bespoke {
namespace {

// Where there is no memory, not even for an error.
bespoke_error without_memory = {sizeof(bespoke_error),
                                BESPOKE_BUDGET_EXCEEDED,
                                "BudgetExceeded",
                                "memory",
                                "no room for an allocation",
                                "room within the limit that the system sets",
                                "Raise the limit or use a bundle built for a smaller budget",
                                nullptr};

}  // namespace

bespoke_error* no_memory() { return &without_memory; }

bespoke_status tell(bespoke_error* record, bespoke_error** error) {
  const bespoke_status status = record->status;
  if (error)
    *error = record;
  else
    bespoke_error_free(record);
  return status;
}

// One allocation: the record, then its texts.
bespoke_error* record_of(const Error& error) {
  const std::string references = references_of(error);
  const std::string* texts[] = {&error.subject, &error.got, &error.expected, &error.next_step, &references};
  const size_t kind_size = std::strlen(name_of(error.kind)) + 1;
  size_t size = sizeof(bespoke_error) + kind_size;
  for (const std::string* text : texts) size += text->size() + 1;
  auto* record = static_cast<bespoke_error*>(std::malloc(size));
  if (!record) return no_memory();
  record->struct_size = sizeof(bespoke_error);
  record->status = static_cast<bespoke_status>(status_of(error.kind));
  char* at = reinterpret_cast<char*>(record + 1);
  const auto put = [&](const char* text, size_t length) {
    const char* begin = at;
    std::memcpy(at, text, length);
    at += length;
    return begin;
  };
  record->kind = put(name_of(error.kind), kind_size);
  const char** fields[] = {&record->subject, &record->got, &record->expected, &record->next_step, &record->references};
  for (size_t i = 0; i < 5; i++) *fields[i] = put(texts[i]->c_str(), texts[i]->size() + 1);
  if (references.empty()) record->references = nullptr;
  return record;
}

}  // namespace bespoke

void bespoke_error_free(bespoke_error* error) {
  if (error != bespoke::no_memory()) std::free(error);
}
