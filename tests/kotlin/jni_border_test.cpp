// SPDX-License-Identifier: Apache-2.0
// What jni_border.h does with a text and an error where a Java exception is pending. The JVM and the core are stood in for here.
#include <cstdio>
#include <cstdlib>

#include "jni_border.h"

namespace {

int texts = 0, errors = 0;  // that were given and not freed
bool is_pending = false;

jboolean JNICALL exception_check(JNIEnv*) { return is_pending; }

bespoke_status gives_a_report(char** text, bespoke_error**) {
  *text = static_cast<char*>(std::malloc(1));
  **text = 0;
  texts++;
  return BESPOKE_OK;
}

bespoke_status fails(char**, bespoke_error** error) {
  *error = static_cast<bespoke_error*>(std::calloc(1, sizeof(bespoke_error)));
  errors++;
  return BESPOKE_CANCELLED;
}

}  // namespace

void bespoke_free(char* text) {
  if (text) texts--;
  std::free(text);
}

void bespoke_error_free(bespoke_error* error) {
  if (error) errors--;
  std::free(error);
}

int main() {
  JNINativeInterface_ functions{};
  functions.ExceptionCheck = exception_check;
  JNIEnv env{&functions};
  is_pending = true;  // the app's progress has thrown
  int thrown = 0;
  for (const auto call : {gives_a_report, fails}) try {
      bespoke_jni::taken(&env, call);
    } catch (const bespoke_jni::Thrown&) {
      thrown++;
    }
  std::printf("%d thrown, %d texts and %d errors left\n", thrown, texts, errors);
}
