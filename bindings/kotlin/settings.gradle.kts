// SPDX-License-Identifier: Apache-2.0
// For an app's build: includeBuild("PATH/bindings/kotlin"), or publish the modules with it. Not run where the binding is tested: Maven
// compiles and tests the same sources there, and tests/kotlin/test_gradle.py holds what stands in both.
pluginManagement {
    repositories {
        google()
        mavenCentral()
        gradlePluginPortal()
    }
}
dependencyResolutionManagement {
    repositories {
        google()
        mavenCentral()
    }
}
rootProject.name = "bespoke"
include(":bespoke-core", ":bespoke-android", ":bespoke-delivery", ":bespoke-federation")
project(":bespoke-core").projectDir = file("core")
project(":bespoke-android").projectDir = file("android")
project(":bespoke-delivery").projectDir = file("delivery")
project(":bespoke-federation").projectDir = file("federation")
