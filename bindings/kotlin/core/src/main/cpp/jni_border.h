// SPDX-License-Identifier: Apache-2.0
// What crosses between Kotlin and the C API: texts as UTF-8 bytes, since JNI's own encoding is another one; handles as numbers; errors, of
// which a failed call throws NativeFailure with its four parts; the settings of a call.
#pragma once

#include <jni.h>

#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "bespoke.h"

namespace bespoke_jni {

struct Classes {
  jclass failure, piece;
  jmethodID make_failure, make_piece, on_progress;
  jfieldID call_cancel, call_deadline, call_progress, call_wait, call_busy;
};
inline Classes classes;  // set once, as the library is loaded

struct Thrown {};  // never leaves a call: a Java exception is pending

inline void check_java(JNIEnv* env) {
  if (env->ExceptionCheck()) throw Thrown{};
}

inline std::string bytes_of(JNIEnv* env, jbyteArray array) {
  if (!array) return {};
  std::string found(static_cast<size_t>(env->GetArrayLength(array)), '\0');
  env->GetByteArrayRegion(array, 0, static_cast<jsize>(found.size()), reinterpret_cast<jbyte*>(found.data()));
  check_java(env);
  return found;
}

inline jbyteArray array_of(JNIEnv* env, const char* text) {
  const auto size = static_cast<jsize>(std::strlen(text));
  jbyteArray array = env->NewByteArray(size);
  if (!array) throw Thrown{};
  env->SetByteArrayRegion(array, 0, size, reinterpret_cast<const jbyte*>(text));
  return array;
}

inline bespoke_text text(const std::string& given) { return {given.data(), given.size()}; }

template <class T>
T* pointer(jlong handle) {
  return reinterpret_cast<T*>(handle);
}

[[noreturn]] inline void throw_failure(JNIEnv* env, bespoke_status status, bespoke_error* error) {
  if (!env->ExceptionCheck()) {  // what the app's progress has thrown comes first
    jbyteArray parts[5] = {};
    const char* words[] = {error ? error->subject : "", error ? error->got : "", error ? error->expected : "",
                           error ? error->next_step : "", error && error->references ? error->references : ""};
    bool whole = true;
    for (size_t i = 0; i < 5 && whole; i++) {
      const auto size = static_cast<jsize>(std::strlen(words[i]));
      parts[i] = env->NewByteArray(size);
      if ((whole = parts[i] != nullptr)) env->SetByteArrayRegion(parts[i], 0, size, reinterpret_cast<const jbyte*>(words[i]));
    }
    if (whole)
      if (auto* failure = static_cast<jthrowable>(env->NewObject(classes.failure, classes.make_failure, static_cast<jint>(status), parts[0],
                                                                 parts[1], parts[2], parts[3], parts[4])))
        env->Throw(failure);
  }
  bespoke_error_free(error);
  throw Thrown{};
}

// A call of the C API, by `call(&error)`.
template <class F>
void checked(JNIEnv* env, F call) {
  bespoke_error* error = nullptr;
  if (const bespoke_status status = call(&error)) throw_failure(env, status, error);
  check_java(env);
}

// A text that a call gives, as bytes.
template <class F>
jbyteArray taken(JNIEnv* env, F call) {
  struct Text {
    char* given = nullptr;
    ~Text() { bespoke_free(given); }
  } text;
  checked(env, [&](bespoke_error** error) { return call(&text.given, error); });  // throws also where only the app's progress has thrown
  return array_of(env, text.given);
}

// The border: no C++ exception crosses it.
template <class T, class F>
T guarded(JNIEnv* env, T failed, F body) {
  try {
    return body();
  } catch (const Thrown&) {
  } catch (const std::bad_alloc&) {
    if (jclass none = env->FindClass("java/lang/OutOfMemoryError")) env->ThrowNew(none, "no memory for a call of bespoke");
  } catch (const std::exception& error) {
    if (jclass other = env->FindClass("java/lang/IllegalStateException")) env->ThrowNew(other, error.what());
  }
  return failed;
}

template <class F>
void guarded(JNIEnv* env, F body) {
  guarded(env, 0, [&] {
    body();
    return 0;
  });
}

struct Bundle {
  std::string path;
  bespoke_bundle given{};

  Bundle(JNIEnv* env, jbyteArray where, jint descriptor, jlong offset, jlong size) : path(bytes_of(env, where)) {
    given.struct_size = sizeof given;
    given.path = text(path);
    given.descriptor = descriptor;
    given.offset = static_cast<uint64_t>(offset), given.size = static_cast<uint64_t>(size);
  }
};

struct Options {
  std::string pin, key, cache;
  bespoke_options given{};

  Options(JNIEnv* env, jbyteArray pin_sha256, jbyteArray public_key, jboolean require_authenticated)
      : pin(bytes_of(env, pin_sha256)), key(bytes_of(env, public_key)) {
    given.struct_size = sizeof given;
    given.pin_sha256 = text(pin);
    given.public_key = key.empty() ? nullptr : reinterpret_cast<const uint8_t*>(key.data());
    given.require_authenticated = require_authenticated;
  }
};

// What a NativeCall says: token, deadline, progress, waits.
struct Call {
  JNIEnv* env;
  jobject receiver;
  bespoke_call given{};

  Call(JNIEnv* on, jobject call) : env(on), receiver(on->GetObjectField(call, classes.call_progress)) {
    given.struct_size = sizeof given;
    given.cancel = pointer<bespoke_cancel>(env->GetLongField(call, classes.call_cancel));
    given.deadline_seconds = env->GetDoubleField(call, classes.call_deadline);
    given.wait_seconds = env->GetDoubleField(call, classes.call_wait);
    given.busy_seconds = env->GetDoubleField(call, classes.call_busy);
    given.context = this;
    if (receiver) given.progress = tell;
  }
  static int32_t tell(void* context, const bespoke_progress* progress) {
    const Call& call = *static_cast<Call*>(context);
    if (call.env->ExceptionCheck()) return 1;
    const jboolean goes_on = call.env->CallBooleanMethod(call.receiver, classes.on_progress, static_cast<jint>(progress->phase),
                                                         static_cast<jlong>(progress->step), static_cast<jlong>(progress->steps),
                                                         progress->loss, static_cast<jlong>(progress->footprint_bytes));
    return call.env->ExceptionCheck() || !goes_on;
  }
};

struct Training {
  std::string method, settings;
  bespoke_training given{};

  Training(JNIEnv* env, jbyteArray of, jlong run_steps, jlong most_steps, jlong seed, jboolean has_seed, jbyteArray with, jboolean new_run)
      : method(bytes_of(env, of)), settings(bytes_of(env, with)) {
    given.struct_size = sizeof given;
    given.method = text(method), given.settings = text(settings);
    given.run_steps = run_steps, given.most_steps = most_steps;
    given.seed = seed, given.has_seed = has_seed, given.new_run = new_run;
  }
};

}  // namespace bespoke_jni
