// SPDX-License-Identifier: Apache-2.0
// Federated learning in the C API.
#include "api/arguments.h"
#include "api/errors.h"
#include "api/handles.h"

using namespace bespoke;

bespoke_status bespoke_federation_join(bespoke_model* model, const bespoke_call* call, bespoke_error** error) {
  return stored(model, call, error, [](PersonalModel& model) { model.join_federation(); });
}

bespoke_status bespoke_federation_leave(bespoke_model* model, const bespoke_call* call, bespoke_error** error) {
  return stored(model, call, error, [](PersonalModel& model) { model.leave_federation(); });
}

bespoke_status bespoke_federation_status(bespoke_model* model, char** status, bespoke_error** error) {
  return giving(model, nullptr, status, error, [](PersonalModel& model) { return model.federation_status(); });
}

bespoke_status bespoke_federation_request(bespoke_model* model, char** request, bespoke_error** error) {
  return giving(model, nullptr, request, error, [](PersonalModel& model) { return model.federation_request(); });
}

bespoke_status bespoke_federation_respond(bespoke_model* model, bespoke_text request, bespoke_text response, const bespoke_call* call,
                                          bespoke_error** error) {
  return stored(model, call, error, [&](PersonalModel& model) {
    if (response.size) need(response.data, "response", "the bytes that came");
    model.federation_respond(text_of(request, "request"), {reinterpret_cast<const uint8_t*>(response.data), response.size});
  });
}

bespoke_status bespoke_federation_take_part(bespoke_model* model, const bespoke_call* call, char** report, bespoke_error** error) {
  return computed(model, call, report, error,
                  [](PersonalModel& model, CallSettings settings) { return model.federation_take_part(std::move(settings)); });
}

bespoke_status bespoke_federation_adopt(bespoke_model* model, const bespoke_call* call, char** report, bespoke_error** error) {
  return computed(model, call, report, error,
                  [](PersonalModel& model, CallSettings settings) { return model.federation_adopt(std::move(settings)); });
}
