// SPDX-License-Identifier: Apache-2.0
plugins {
    alias(libs.plugins.android.library) apply false
    alias(libs.plugins.kotlin.android) apply false
    alias(libs.plugins.kotlin.serialization) apply false
}

subprojects {
    group = "dev.bespoke"
    version = rootProject.libs.versions.bespoke.get()
}
