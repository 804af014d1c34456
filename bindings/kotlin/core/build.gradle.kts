// SPDX-License-Identifier: Apache-2.0
// The verbs of the device core. Run ../build_with_ndk.sh before: the AAR takes the libraries that it makes.
plugins {
    alias(libs.plugins.android.library)
    alias(libs.plugins.kotlin.android)
    alias(libs.plugins.kotlin.serialization)
}

android {
    namespace = "dev.bespoke"
    compileSdk = libs.versions.compile.sdk.get().toInt()
    defaultConfig {
        minSdk = libs.versions.min.sdk.get().toInt()
        consumerProguardFiles("consumer-rules.pro")
    }
    lint { targetSdk = libs.versions.target.sdk.get().toInt() }
    sourceSets["main"].kotlin.srcDir("src/main/kotlin")
    sourceSets["main"].jniLibs.srcDir("../build/ndk") // where build_with_ndk.sh leaves ABI/*.so
}

kotlin {
    jvmToolchain(libs.versions.jvm.get().toInt())
    compilerOptions { allWarningsAsErrors = true }
}

dependencies {
    api(libs.coroutines.core)
    api(libs.serialization.json)
}
