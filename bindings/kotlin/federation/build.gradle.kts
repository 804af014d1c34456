// SPDX-License-Identifier: Apache-2.0
// What the users of an app learn together. It asks for INTERNET, for a server of the app alone.
plugins {
    alias(libs.plugins.android.library)
    alias(libs.plugins.kotlin.android)
    alias(libs.plugins.kotlin.serialization)
}

android {
    namespace = "dev.bespoke.federation"
    compileSdk = libs.versions.compile.sdk.get().toInt()
    defaultConfig {
        minSdk = libs.versions.min.sdk.get().toInt()
        consumerProguardFiles("consumer-rules.pro")
    }
    lint { targetSdk = libs.versions.target.sdk.get().toInt() }
    sourceSets["main"].kotlin.srcDir("src/main/kotlin")
}

kotlin {
    jvmToolchain(libs.versions.jvm.get().toInt())
    compilerOptions { allWarningsAsErrors = true }
}

dependencies {
    api(project(":bespoke-core"))
    api(project(":bespoke-android"))
    implementation(libs.work.runtime)
    implementation(libs.coroutines.android)
    implementation(libs.okhttp)
}
