// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.notes

import android.Manifest
import android.content.pm.PackageManager
import android.content.res.Configuration
import java.io.File
import java.util.Locale
import javax.xml.parsers.DocumentBuilderFactory
import org.junit.Assert.assertEquals
import org.junit.Assert.assertFalse
import org.junit.Assert.assertTrue
import org.junit.Test
import org.junit.runner.RunWith
import org.robolectric.RobolectricTestRunner
import org.robolectric.RuntimeEnvironment
import org.w3c.dom.Element

/** What the app promises its user, by what the system will read. */
@RunWith(RobolectricTestRunner::class)
class NotesManifestTest {
    private val app = RuntimeEnvironment.getApplication()
    private val merged = read("target/android/AndroidManifest.xml")

    @Test
    fun `it cannot reach the internet`() {
        val told = app.packageManager.getPackageInfo(app.packageName, PackageManager.GET_PERMISSIONS)
        val asked = told.requestedPermissions.orEmpty().toSet()
        assertFalse(Manifest.permission.INTERNET in asked)
        val known = listOf(
            Manifest.permission.FOREGROUND_SERVICE, Manifest.permission.FOREGROUND_SERVICE_DATA_SYNC,
            Manifest.permission.POST_NOTIFICATIONS, Manifest.permission.WAKE_LOCK, Manifest.permission.ACCESS_NETWORK_STATE,
            Manifest.permission.RECEIVE_BOOT_COMPLETED,
            "dev.bespoke.notes.DYNAMIC_RECEIVER_NOT_EXPORTED_PERMISSION",
        )
        assertEquals(known.toSet(), asked)
    }

    @Test
    fun `nothing is backed up, and libraries are mapped from the APK`() {
        val application = merged.all("application").single()
        for (name in listOf("allowBackup", "fullBackupContent", "extractNativeLibs")) {
            assertEquals(name, "false", application.getAttribute("android:$name"))
        }
        assertEquals("@xml/data_extraction_rules", application.getAttribute("android:dataExtractionRules"))
    }

    @Test
    fun `WorkManager is initialised on demand`() {
        val startup = merged.all("meta-data").map { it.getAttribute("android:name") }
        assertFalse("androidx.work.WorkManagerInitializer" in startup)
        assertTrue(androidx.work.Configuration.Provider::class.java.isAssignableFrom(NotesApp::class.java))
    }

    @Test
    fun `each text is there in both languages`() {
        val (english, german) = texts("values") to texts("values-de")
        assertEquals(english.keys, german.keys)
        for (name in english.keys) assertEquals(name, placeholders(english[name]!!), placeholders(german[name]!!))
        val germanApp = app.createConfigurationContext(Configuration().apply { setLocale(Locale.GERMAN) })
        assertEquals("Notizen", germanApp.getString(R.string.app_name))
    }

    private fun texts(folder: String): Map<String, String> = read("src/main/res/$folder/strings.xml")
        .run { all("string") + all("plurals") }
        .associate { it.getAttribute("name") to it.textContent }

    private fun placeholders(text: String) = Regex("%\\d\\$[ds]").findAll(text).map { it.value }.toSet()

    private fun read(path: String): Element = DocumentBuilderFactory.newInstance().newDocumentBuilder().parse(File(path)).documentElement

    private fun Element.all(tag: String): List<Element> =
        getElementsByTagName(tag).let { found -> (0 until found.length).map { found.item(it) as Element } }
}
