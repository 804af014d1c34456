// SPDX-License-Identifier: Apache-2.0
// Bundles from a server. It asks for INTERNET.
plugins {
    alias(libs.plugins.android.library)
    alias(libs.plugins.kotlin.android)
    alias(libs.plugins.kotlin.serialization)
}

android {
    namespace = "dev.bespoke.delivery"
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
    implementation(libs.work.runtime)
    implementation(libs.coroutines.android)
    implementation(libs.okhttp)
}
