// SPDX-License-Identifier: Apache-2.0
#include "error.h"

namespace bespoke {

Error::Error(Kind kind, std::string subject, std::string got, std::string expected, std::string next_step)
    : kind(kind), subject(std::move(subject)), got(std::move(got)), expected(std::move(expected)), next_step(std::move(next_step)) {
  message = this->subject + ": got " + this->got + "; expected " + this->expected + ". " + this->next_step + ".";
}

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::Config: return "ConfigError";
    case Kind::Data: return "DataError";
    case Kind::Plan: return "PlanError";
    case Kind::Bundle: return "BundleError";
    case Kind::BundleVersion: return "BundleVersionError";
    case Kind::Signature: return "SignatureError";
    case Kind::Golden: return "GoldenMismatch";
    case Kind::State: return "StateError";
    case Kind::StateLocked: return "StateLocked";
    case Kind::DiskFull: return "DiskFull";
    case Kind::Budget: return "BudgetExceeded";
    case Kind::Adapter: return "AdapterError";
    case Kind::Unsupported: return "Unsupported";
    case Kind::MissingDependency: return "MissingDependency";
    case Kind::Internal: break;
  }
  return "BespokeError";
}

int code_of(Kind kind) {
  switch (kind) {
    case Kind::Config: return 2;
    case Kind::MissingDependency: return 3;
    case Kind::Data: return 5;
    case Kind::Plan:
    case Kind::Unsupported: return 6;
    case Kind::Bundle:
    case Kind::BundleVersion:
    case Kind::Signature:
    case Kind::Golden: return 8;
    case Kind::State:
    case Kind::StateLocked:
    case Kind::DiskFull: return 9;
    case Kind::Budget: return 10;
    case Kind::Adapter: return 12;
    case Kind::Internal: break;
  }
  return 1;
}

}  // namespace bespoke
