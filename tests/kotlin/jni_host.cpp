// SPDX-License-Identifier: Apache-2.0
// jni_host LIBRARY BUNDLE STATE NOTE...: what a JVM does with libbespoke_jni, without one, so that qemu can run it for another processor.
// It takes the table of natives that JNI_OnLoad registers, opens, adds the notes, trains three steps and prints the report.
#include <dlfcn.h>
#include <jni.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace {

using Bytes = std::string;  // a byte[] of this host; never freed, it lives for three steps

std::map<std::string, void*> natives;
bool has_thrown = false;
constexpr jlong kSteps = 3;
constexpr double kMemoryMb = 300;  // more than the bundle's budget: what qemu translates counts too

jobject object(const void* any) { return static_cast<jobject>(const_cast<void*>(any)); }
Bytes& bytes(jarray array) { return *reinterpret_cast<Bytes*>(array); }
jbyteArray array(const char* text) { return text ? reinterpret_cast<jbyteArray>(new Bytes(text)) : nullptr; }

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(1);
}

jclass JNICALL find_class(JNIEnv*, const char* name) { return static_cast<jclass>(object(new Bytes(name))); }
jmethodID JNICALL method_id(JNIEnv*, jclass, const char* name, const char*) { return reinterpret_cast<jmethodID>(new Bytes(name)); }
jobject JNICALL same(JNIEnv*, jobject reference) { return reference; }
void JNICALL nothing(JNIEnv*, jobject) {}
jboolean JNICALL exception_check(JNIEnv*) { return has_thrown; }
jsize JNICALL length(JNIEnv*, jarray of) { return static_cast<jsize>(bytes(of).size()); }
jbyteArray JNICALL new_bytes(JNIEnv*, jsize size) { return reinterpret_cast<jbyteArray>(new Bytes(static_cast<size_t>(size), '\0')); }

void JNICALL get_bytes(JNIEnv*, jbyteArray of, jsize begin, jsize size, jbyte* out) {
  bytes(of).copy(reinterpret_cast<char*>(out), static_cast<size_t>(size), static_cast<size_t>(begin));
}

void JNICALL set_bytes(JNIEnv*, jbyteArray of, jsize begin, jsize size, const jbyte* from) {
  bytes(of).replace(static_cast<size_t>(begin), static_cast<size_t>(size), reinterpret_cast<const char*>(from), static_cast<size_t>(size));
}

jint JNICALL register_natives(JNIEnv*, jclass, const JNINativeMethod* methods, jint count) {
  for (jint i = 0; i < count; i++) natives[methods[i].name] = methods[i].fnPtr;
  return 0;
}

// NativeFailure(status, subject, got, expected, nextStep)
jobject JNICALL new_object(JNIEnv*, jclass, jmethodID, va_list arguments) {
  std::string said = "status " + std::to_string(va_arg(arguments, jint));
  for (int i = 0; i < 4; i++) said += "; " + bytes(static_cast<jarray>(va_arg(arguments, jobject)));
  fail(said);
}

jint JNICALL throw_new(JNIEnv*, jclass, const char* why) { fail(why); }

// ProgressReceiver.onProgress(phase, step, steps, loss, footprint): goes on until the third step
jboolean JNICALL on_progress(JNIEnv*, jobject, jmethodID, va_list arguments) {
  const jint phase = va_arg(arguments, jint);
  const jlong step = va_arg(arguments, jlong);
  return !(phase == 2 && step >= kSteps);
}

// NativeCall: a call without token, deadline and waits. Its progress is the app's receiver.
jfieldID JNICALL field_id(JNIEnv*, jclass, const char* name, const char*) { return reinterpret_cast<jfieldID>(new Bytes(name)); }
jobject JNICALL object_field(JNIEnv*, jobject call, jfieldID) { return call; }
jlong JNICALL long_field(JNIEnv*, jobject, jfieldID) { return 0; }
jdouble JNICALL double_field(JNIEnv*, jobject, jfieldID) { return 0; }

jint JNICALL get_env(JavaVM*, void** env, jint);

JNINativeInterface_ functions{};
JNIInvokeInterface_ invocations{};
JNIEnv environment{&functions};
JavaVM machine{&invocations};

jint JNICALL get_env(JavaVM*, void** env, jint) {
  *env = &environment;
  return JNI_OK;
}

template <class F>
F native(const char* name) {
  const auto found = natives.find(name);
  if (found == natives.end()) fail(std::string("not registered: ") + name);
  return reinterpret_cast<F>(found->second);
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) fail("jni_host LIBRARY BUNDLE STATE NOTE...");
  functions.FindClass = find_class, functions.GetMethodID = method_id, functions.NewGlobalRef = same, functions.DeleteLocalRef = nothing;
  functions.ExceptionCheck = exception_check, functions.GetArrayLength = length, functions.NewByteArray = new_bytes;
  functions.GetByteArrayRegion = get_bytes, functions.SetByteArrayRegion = set_bytes, functions.RegisterNatives = register_natives;
  functions.NewObjectV = new_object, functions.ThrowNew = throw_new, functions.CallBooleanMethodV = on_progress;
  functions.GetFieldID = field_id, functions.GetObjectField = object_field, functions.GetLongField = long_field;
  functions.GetDoubleField = double_field;
  invocations.GetEnv = get_env;

  void* library = dlopen(arguments[1], RTLD_NOW);
  if (!library) fail(dlerror());
  const auto on_load = reinterpret_cast<jint (*)(JavaVM*, void*)>(dlsym(library, "JNI_OnLoad"));
  if (!on_load || on_load(&machine, nullptr) != JNI_VERSION_1_6) fail("JNI_OnLoad did not load");

  using Open = jlong (*)(JNIEnv*, jclass, jbyteArray, jint, jlong, jlong, jbyteArray, jdouble, jbyteArray, jbyteArray, jboolean, jint,
                         jbyteArray, jint, jobject);
  using Add = jbyteArray (*)(JNIEnv*, jclass, jlong, jbyteArray, jbyteArray, jbyteArray, jobject);
  using Train = jbyteArray (*)(JNIEnv*, jclass, jlong, jbyteArray, jlong, jlong, jlong, jboolean, jbyteArray, jboolean, jobject);
  using Text = jbyteArray (*)(JNIEnv*, jclass);
  constexpr jint limit_since_open = 1;
  const jobject call = object(new Bytes("the app's receiver"));
  const jlong model = native<Open>("open")(&environment, nullptr, array(arguments[2]), 0, 0, 0, array(arguments[3]), kMemoryMb, nullptr,
                                           nullptr, false, 1, nullptr, limit_since_open, call);
  for (int i = 4; i < count; i++) {
    const std::string id = "note-" + std::to_string(i - 4);
    native<Add>("addExample")(&environment, nullptr, model, array(arguments[i]), array(id.c_str()), array("train"), call);
  }
  const jbyteArray report = native<Train>("train")(&environment, nullptr, model, nullptr, 0, 0, 0, false, nullptr, false, call);
  std::printf("%zu\n%s\n%s\n", natives.size(), bytes(native<Text>("instructionSet")(&environment, nullptr)).c_str(), bytes(report).c_str());
  native<void (*)(JNIEnv*, jclass, jlong)>("close")(&environment, nullptr, model);
}
