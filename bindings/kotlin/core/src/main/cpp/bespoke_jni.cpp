// SPDX-License-Identifier: Apache-2.0
// The C API of bespoke.h for Kotlin (NativeApi.kt), call by call, without logic of its own.
#include <vector>

#include "jni_border.h"

namespace {

using namespace bespoke_jni;

// ---- a model ------------------------------------------------------------------------------------------------------------

std::vector<std::string> texts_of(JNIEnv* env, jobjectArray arrays) {
  std::vector<std::string> texts;
  for (jsize i = 0; i < env->GetArrayLength(arrays); i++) {
    auto* bytes = static_cast<jbyteArray>(env->GetObjectArrayElement(arrays, i));
    texts.push_back(bytes_of(env, bytes));
    env->DeleteLocalRef(bytes);
  }
  return texts;
}

jlong open(JNIEnv* env, jclass, jbyteArray path, jint descriptor, jlong offset, jlong size, jbyteArray state, jdouble memory_mb,
           jbyteArray pin, jbyteArray key, jboolean require_authenticated, jint threads, jbyteArray cache, jint limit_counts,
           jobject given) {
  return guarded<jlong>(env, 0, [&] {
    const Call call(env, given);
    const Bundle bundle(env, path, descriptor, offset, size);
    Options options(env, pin, key, require_authenticated);
    options.cache = bytes_of(env, cache);
    options.given.cache = text(options.cache);
    options.given.memory_mb = memory_mb, options.given.threads = threads,
    options.given.limit_counts = static_cast<bespoke_limit_counts>(limit_counts);
    const std::string folder = bytes_of(env, state);
    bespoke_model* model = nullptr;
    checked(env,
            [&](bespoke_error** error) { return bespoke_open(&bundle.given, text(folder), &options.given, &call.given, &model, error); });
    return reinterpret_cast<jlong>(model);
  });
}

void close(JNIEnv* env, jclass, jlong model) {
  guarded(env, [&] { checked(env, [&](bespoke_error** error) { return bespoke_close(pointer<bespoke_model>(model), -1, error); }); });
}

void install(JNIEnv* env, jclass, jobjectArray archives, jbyteArray folder, jbyteArray pin, jbyteArray key, jboolean require_authenticated,
             jobject given) {
  guarded(env, [&] {
    const Call call(env, given);
    const std::vector<std::string> paths = texts_of(env, archives);
    std::vector<bespoke_text> archived;
    for (const std::string& path : paths) archived.push_back(text(path));
    const Options options(env, pin, key, require_authenticated);
    const std::string target = bytes_of(env, folder);
    checked(env, [&](bespoke_error** error) {
      return bespoke_install(archived.data(), archived.size(), text(target), &options.given, &call.given, error);
    });
  });
}

jbyteArray authenticated(JNIEnv* env, jclass, jlong model) {
  return guarded<jbyteArray>(env, nullptr, [&] { return array_of(env, bespoke_authenticated(pointer<bespoke_model>(model))); });
}

void set_limit(JNIEnv* env, jclass, jlong model, jdouble memory_mb) {
  guarded(env,
          [&] { checked(env, [&](bespoke_error** error) { return bespoke_set_limit(pointer<bespoke_model>(model), memory_mb, error); }); });
}

void set_pace(JNIEnv* env, jclass, jlong model, jdouble share) {
  guarded(env, [&] { checked(env, [&](bespoke_error** error) { return bespoke_set_pace(pointer<bespoke_model>(model), share, error); }); });
}

// ---- verbs of the store -------------------------------------------------------------------------------------------------

bespoke_example example_of(const std::string& json, const std::string& id, const std::string& use) {
  bespoke_example example{};
  example.struct_size = sizeof example;
  example.json = text(json), example.id = text(id), example.use = text(use);
  return example;
}

jbyteArray add_example(JNIEnv* env, jclass, jlong model, jbyteArray json, jbyteArray id, jbyteArray use, jobject given) {
  return guarded<jbyteArray>(env, nullptr, [&] {
    const std::string words = bytes_of(env, json), name = bytes_of(env, id), purpose = bytes_of(env, use);
    const bespoke_example example = example_of(words, name, purpose);
    const Call call(env, given);
    return taken(env, [&](char** added, bespoke_error** error) {
      return bespoke_add_example(pointer<bespoke_model>(model), &example, &call.given, added, error);
    });
  });
}

jbyteArray add_examples(JNIEnv* env, jclass, jlong model, jobjectArray jsons, jbyteArray use, jobject given) {
  return guarded<jbyteArray>(env, nullptr, [&] {
    const std::vector<std::string> words = texts_of(env, jsons);
    const std::string purpose = bytes_of(env, use), none;
    std::vector<bespoke_example> examples;
    std::vector<const bespoke_example*> places;
    for (const std::string& json : words) examples.push_back(example_of(json, none, purpose));
    for (const bespoke_example& example : examples) places.push_back(&example);
    const Call call(env, given);
    return taken(env, [&](char** added, bespoke_error** error) {
      return bespoke_add_examples(pointer<bespoke_model>(model), places.data(), places.size(), &call.given, added, error);
    });
  });
}

jbyteArray correct(JNIEnv* env, jclass, jlong model, jbyteArray answer, jbyteArray better, jobject given) {
  return guarded<jbyteArray>(env, nullptr, [&] {
    const std::string messages = bytes_of(env, answer), words = bytes_of(env, better);
    const Call call(env, given);
    return taken(env, [&](char** added, bespoke_error** error) {
      return bespoke_correct(pointer<bespoke_model>(model), text(messages), text(words), &call.given, added, error);
    });
  });
}

jbyteArray list_examples(JNIEnv* env, jclass, jlong model, jbyteArray after, jlong most) {
  return guarded<jbyteArray>(env, nullptr, [&] {
    const std::string id = bytes_of(env, after);
    return taken(env, [&](char** found, bespoke_error** error) {
      return bespoke_list_examples(pointer<bespoke_model>(model), text(id), most, found, error);
    });
  });
}

// Of functions that take a model and give a text.
template <bespoke_status (*function)(bespoke_model*, char**, bespoke_error**)>
jbyteArray listed(JNIEnv* env, jclass, jlong model) {
  return guarded<jbyteArray>(env, nullptr, [&] {
    return taken(env, [&](char** found, bespoke_error** error) { return function(pointer<bespoke_model>(model), found, error); });
  });
}

jlong count_examples(JNIEnv* env, jclass, jlong model) {
  return guarded<jlong>(env, 0, [&] {
    int64_t count = 0;
    checked(env, [&](bespoke_error** error) { return bespoke_count_examples(pointer<bespoke_model>(model), &count, error); });
    return count;
  });
}

jbyteArray forget_example(JNIEnv* env, jclass, jlong model, jbyteArray id, jobject given) {
  return guarded<jbyteArray>(env, nullptr, [&] {
    const std::string name = bytes_of(env, id);
    const Call call(env, given);
    return taken(env, [&](char** forgotten, bespoke_error** error) {
      return bespoke_forget_example(pointer<bespoke_model>(model), text(name), &call.given, forgotten, error);
    });
  });
}

jlong count_tokens(JNIEnv* env, jclass, jlong model, jbyteArray prompt) {
  return guarded<jlong>(env, 0, [&] {
    const std::string words = bytes_of(env, prompt);
    int64_t tokens = 0;
    checked(env, [&](bespoke_error** error) { return bespoke_count_tokens(pointer<bespoke_model>(model), text(words), &tokens, error); });
    return tokens;
  });
}

void trim(JNIEnv* env, jclass, jlong model) {
  guarded(env, [&] { checked(env, [&](bespoke_error** error) { return bespoke_trim(pointer<bespoke_model>(model), error); }); });
}

jboolean abandon_run(JNIEnv* env, jclass, jlong model, jobject given) {
  return guarded<jboolean>(env, JNI_FALSE, [&] {
    const Call call(env, given);
    int32_t ended = 0;
    checked(env, [&](bespoke_error** error) { return bespoke_abandon_run(pointer<bespoke_model>(model), &call.given, &ended, error); });
    return static_cast<jboolean>(ended != 0);
  });
}

// Of functions that take a model and a call, and give a text.
template <bespoke_status (*function)(bespoke_model*, const bespoke_call*, char**, bespoke_error**)>
jbyteArray reported(JNIEnv* env, jclass, jlong model, jobject given) {
  return guarded<jbyteArray>(env, nullptr, [&] {
    const Call call(env, given);
    return taken(env,
                 [&](char** report, bespoke_error** error) { return function(pointer<bespoke_model>(model), &call.given, report, error); });
  });
}

// Of functions that take a model and a call.
template <bespoke_status (*function)(bespoke_model*, const bespoke_call*, bespoke_error**)>
void changed(JNIEnv* env, jclass, jlong model, jobject given) {
  guarded(env, [&] {
    const Call call(env, given);
    checked(env, [&](bespoke_error** error) { return function(pointer<bespoke_model>(model), &call.given, error); });
  });
}

void export_adapter(JNIEnv* env, jclass, jlong model, jbyteArray folder, jbyteArray format, jboolean base, jobject given) {
  guarded(env, [&] {
    const std::string where = bytes_of(env, folder), as = bytes_of(env, format);
    const Call call(env, given);
    checked(env, [&](bespoke_error** error) {
      return bespoke_export_adapter(pointer<bespoke_model>(model), text(where), text(as), base, &call.given, error);
    });
  });
}

jlong import_adapter(JNIEnv* env, jclass, jlong model, jbyteArray folder, jboolean trust_base, jobject given) {
  return guarded<jlong>(env, 0, [&] {
    const std::string where = bytes_of(env, folder);
    const Call call(env, given);
    int64_t version = 0;
    checked(env, [&](bespoke_error** error) {
      return bespoke_import_adapter(pointer<bespoke_model>(model), text(where), trust_base, &call.given, &version, error);
    });
    return version;
  });
}

void reset_for_new_base(JNIEnv* env, jclass, jbyteArray path, jint descriptor, jlong offset, jlong size, jbyteArray state, jbyteArray pin,
                        jbyteArray key, jboolean require_authenticated, jobject given) {
  guarded(env, [&] {
    const Call call(env, given);
    const Bundle bundle(env, path, descriptor, offset, size);
    const Options options(env, pin, key, require_authenticated);
    const std::string folder = bytes_of(env, state);
    checked(env, [&](bespoke_error** error) {
      return bespoke_reset_for_new_base(&bundle.given, text(folder), &options.given, &call.given, error);
    });
  });
}

// ---- calls that compute -------------------------------------------------------------------------------------------------

jlong cancel_new(JNIEnv* env, jclass) {
  return guarded<jlong>(env, 0, [&] {
    bespoke_cancel* made = bespoke_cancel_new();
    if (!made) throw std::bad_alloc();
    return reinterpret_cast<jlong>(made);
  });
}
void cancel_set(JNIEnv*, jclass, jlong cancel) { bespoke_cancel_set(pointer<bespoke_cancel>(cancel)); }
void cancel_free(JNIEnv*, jclass, jlong cancel) { bespoke_cancel_free(pointer<bespoke_cancel>(cancel)); }

jbyteArray train(JNIEnv* env, jclass, jlong model, jbyteArray method, jlong run_steps, jlong most_steps, jlong seed, jboolean has_seed,
                 jbyteArray settings, jboolean new_run, jobject given) {
  return guarded<jbyteArray>(env, nullptr, [&] {
    const Training training(env, method, run_steps, most_steps, seed, has_seed, settings, new_run);
    const Call call(env, given);
    return taken(env, [&](char** report, bespoke_error** error) {
      return bespoke_train(pointer<bespoke_model>(model), &training.given, &call.given, report, error);
    });
  });
}

void check_training(JNIEnv* env, jclass, jlong model, jbyteArray method, jlong run_steps, jlong most_steps, jlong seed, jboolean has_seed,
                    jbyteArray settings, jboolean new_run) {
  guarded(env, [&] {
    const Training training(env, method, run_steps, most_steps, seed, has_seed, settings, new_run);
    checked(env, [&](bespoke_error** error) { return bespoke_check_training(pointer<bespoke_model>(model), &training.given, error); });
  });
}

// Of functions that take two texts: evaluate, score, classify.
template <bespoke_status (*function)(bespoke_model*, bespoke_text, bespoke_text, const bespoke_call*, char**, bespoke_error**)>
jbyteArray asked(JNIEnv* env, jclass, jlong model, jbyteArray one, jbyteArray other, jobject given) {
  return guarded<jbyteArray>(env, nullptr, [&] {
    const std::string first = bytes_of(env, one), second = bytes_of(env, other);
    const Call call(env, given);
    return taken(env, [&](char** found, bespoke_error** error) {
      return function(pointer<bespoke_model>(model), text(first), text(second), &call.given, found, error);
    });
  });
}

void federation_respond(JNIEnv* env, jclass, jlong model, jbyteArray request, jbyteArray response, jobject given) {
  guarded(env, [&] {
    const std::string asked_for = bytes_of(env, request), came = bytes_of(env, response);
    const Call call(env, given);
    checked(env, [&](bespoke_error** error) {
      return bespoke_federation_respond(pointer<bespoke_model>(model), text(asked_for), text(came), &call.given, error);
    });
  });
}

// ---- answers ------------------------------------------------------------------------------------------------------------

jlong session_open(JNIEnv* env, jclass, jlong model, jlong max_tokens, jdouble temperature, jdouble top_p, jlong top_k, jlong seed,
                   jbyteArray stop_texts, jboolean notes) {
  return guarded<jlong>(env, 0, [&] {
    const std::string stops = bytes_of(env, stop_texts);
    bespoke_generation generation{};
    generation.struct_size = sizeof generation;
    generation.max_tokens = max_tokens, generation.temperature = temperature, generation.top_p = top_p, generation.top_k = top_k;
    generation.seed = static_cast<uint64_t>(seed), generation.stop_texts = text(stops);
    generation.notes = notes;
    bespoke_session* session = nullptr;
    checked(env, [&](bespoke_error** error) { return bespoke_session_open(pointer<bespoke_model>(model), &generation, &session, error); });
    return reinterpret_cast<jlong>(session);
  });
}

void session_close(JNIEnv*, jclass, jlong session) { bespoke_session_close(pointer<bespoke_session>(session)); }

void session_feed(JNIEnv* env, jclass, jlong session, jbyteArray prompt) {
  guarded(env, [&] {
    const std::string words = bytes_of(env, prompt);
    checked(env, [&](bespoke_error** error) { return bespoke_session_feed(pointer<bespoke_session>(session), text(words), error); });
  });
}

jobject session_next(JNIEnv* env, jclass, jlong session, jobject given) {
  return guarded<jobject>(env, nullptr, [&] {
    const Call call(env, given);
    const bespoke_piece* piece = nullptr;
    checked(env,
            [&](bespoke_error** error) { return bespoke_session_next(pointer<bespoke_session>(session), &call.given, &piece, error); });
    jobject made = env->NewObject(classes.piece, classes.make_piece, array_of(env, piece->text.data), static_cast<jlong>(piece->token),
                                  static_cast<jlong>(piece->tokens), static_cast<jint>(piece->ended));
    check_java(env);
    return made;
  });
}

jbyteArray version(JNIEnv* env, jclass) {
  return guarded<jbyteArray>(env, nullptr, [&] { return array_of(env, bespoke_version()); });
}
jbyteArray instruction_set(JNIEnv* env, jclass) {
  return guarded<jbyteArray>(env, nullptr, [&] { return array_of(env, bespoke_instruction_set()); });
}

template <class F>
JNINativeMethod method(const char* name, const char* signature, F* function) {
  return {const_cast<char*>(name), const_cast<char*>(signature), reinterpret_cast<void*>(function)};
}

#define CALL "Ldev/bespoke/NativeCall;"

bool register_all(JNIEnv* env, jclass api) {
  const JNINativeMethod methods[] = {
      method("open", "([BIJJ[BD[B[BZI[BI" CALL ")J", open),
      method("close", "(J)V", close),
      method("install", "([[B[B[B[BZ" CALL ")V", install),
      method("authenticated", "(J)[B", authenticated),
      method("setLimit", "(JD)V", set_limit),
      method("setPace", "(JD)V", set_pace),
      method("addExample", "(J[B[B[B" CALL ")[B", add_example),
      method("addExamples", "(J[[B[B" CALL ")[B", add_examples),
      method("correct", "(J[B[B" CALL ")[B", correct),
      method("listExamples", "(J[BJ)[B", list_examples),
      method("countExamples", "(J)J", count_examples),
      method("forgetExample", "(J[B" CALL ")[B", forget_example),
      method("describe", "(J)[B", listed<bespoke_describe>),
      method("countTokens", "(J[B)J", count_tokens),
      method("trim", "(J)V", trim),
      method("plannedTraining", "(J)[B", listed<bespoke_planned_training>),
      method("currentRun", "(J)[B", listed<bespoke_current_run>),
      method("listVersions", "(J)[B", listed<bespoke_list_versions>),
      method("abandonRun", "(J" CALL ")Z", abandon_run),
      method("rollback", "(J" CALL ")[B", reported<bespoke_rollback>),
      method("reset", "(J" CALL ")V", changed<bespoke_reset>),
      method("exportAdapter", "(J[B[BZ" CALL ")V", export_adapter),
      method("importAdapter", "(J[BZ" CALL ")J", import_adapter),
      method("resetForNewBase", "([BIJJ[B[B[BZ" CALL ")V", reset_for_new_base),
      method("cancelNew", "()J", cancel_new),
      method("cancelSet", "(J)V", cancel_set),
      method("cancelFree", "(J)V", cancel_free),
      method("train", "(J[BJJJZ[BZ" CALL ")[B", train),
      method("checkTraining", "(J[BJJJZ[BZ)V", check_training),
      method("evaluate", "(J[B[B" CALL ")[B", asked<bespoke_evaluate>),
      method("verify", "(J" CALL ")[B", reported<bespoke_verify>),
      method("sessionOpen", "(JJDDJJ[BZ)J", session_open),
      method("sessionClose", "(J)V", session_close),
      method("sessionFeed", "(J[B)V", session_feed),
      method("sessionNext", "(J" CALL ")Ldev/bespoke/NativePiece;", session_next),
      method("score", "(J[B[B" CALL ")[B", asked<bespoke_score>),
      method("classify", "(J[B[B" CALL ")[B", asked<bespoke_classify>),
      method("federationJoin", "(J" CALL ")V", changed<bespoke_federation_join>),
      method("federationLeave", "(J" CALL ")V", changed<bespoke_federation_leave>),
      method("federationStatus", "(J)[B", listed<bespoke_federation_status>),
      method("federationRequest", "(J)[B", listed<bespoke_federation_request>),
      method("federationRespond", "(J[B[B" CALL ")V", federation_respond),
      method("federationTakePart", "(J" CALL ")[B", reported<bespoke_federation_take_part>),
      method("federationAdopt", "(J" CALL ")[B", reported<bespoke_federation_adopt>),
      method("version", "()[B", version),
      method("instructionSet", "()[B", instruction_set),
  };
  return env->RegisterNatives(api, methods, static_cast<jint>(sizeof methods / sizeof *methods)) == 0;
}

}  // namespace

extern "C" JNIEXPORT jint JNI_OnLoad(JavaVM* vm, void*) {
  JNIEnv* env = nullptr;
  if (vm->GetEnv(reinterpret_cast<void**>(&env), JNI_VERSION_1_6) != JNI_OK) return JNI_ERR;
  jclass api = env->FindClass("dev/bespoke/NativeApi"), receiver = env->FindClass("dev/bespoke/ProgressReceiver");
  jclass failure = env->FindClass("dev/bespoke/NativeFailure"), piece = env->FindClass("dev/bespoke/NativePiece");
  jclass call = env->FindClass("dev/bespoke/NativeCall");
  if (!api || !receiver || !failure || !piece || !call || !register_all(env, api)) return JNI_ERR;
  classes.call_cancel = env->GetFieldID(call, "cancel", "J");
  classes.call_deadline = env->GetFieldID(call, "deadlineSeconds", "D");
  classes.call_progress = env->GetFieldID(call, "progress", "Ldev/bespoke/ProgressReceiver;");
  classes.call_wait = env->GetFieldID(call, "waitSeconds", "D");
  classes.call_busy = env->GetFieldID(call, "busySeconds", "D");
  if (!classes.call_cancel || !classes.call_deadline || !classes.call_progress || !classes.call_wait || !classes.call_busy) return JNI_ERR;
  classes.failure = static_cast<jclass>(env->NewGlobalRef(failure));
  classes.make_failure = env->GetMethodID(failure, "<init>", "(I[B[B[B[B[B)V");
  classes.piece = static_cast<jclass>(env->NewGlobalRef(piece));
  classes.make_piece = env->GetMethodID(piece, "<init>", "([BJJI)V");
  classes.on_progress = env->GetMethodID(receiver, "onProgress", "(IJJDJ)Z");
  return classes.failure && classes.make_failure && classes.piece && classes.make_piece && classes.on_progress ? JNI_VERSION_1_6 : JNI_ERR;
}
