// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.notes

import android.app.Activity
import android.app.Dialog
import android.content.DialogInterface
import android.view.View
import android.widget.Button
import android.widget.EditText
import android.widget.TextView
import androidx.appcompat.app.AlertDialog
import dev.bespoke.android.HotPowerManager
import dev.bespoke.android.User
import kotlinx.coroutines.runBlocking
import org.robolectric.Robolectric
import org.robolectric.RuntimeEnvironment
import org.robolectric.Shadows.shadowOf
import org.robolectric.android.controller.ActivityController
import org.robolectric.shadows.ShadowDialog

/** Somebody who uses the app: what they open, touch, read and wait for. */
class Driver {
    val app = RuntimeEnvironment.getApplication() as NotesTestApp
    private val opened = mutableListOf<ActivityController<*>>()

    init {
        HotPowerManager.headroom = 0f
        app.charging(false)
    }

    fun <T : Activity> open(screen: Class<T>): T = Robolectric.buildActivity(screen).also { opened += it }.setup().get()

    inline fun <reified T : Activity> open(): T = open(T::class.java)

    /** Opens the screen that a touch has asked for. */
    inline fun <reified T : Activity> follow(): T {
        val intent = checkNotNull(shadowOf(app).nextStartedActivity) { "no screen was asked for" }
        check(intent.component?.className == T::class.java.name) { "asked for ${intent.component}" }
        return open()
    }

    /** The last screen as it is made anew after a rotation. */
    fun <T : Activity> turned(): T {
        RuntimeEnvironment.setQualifiers("+land")
        @Suppress("UNCHECKED_CAST")
        return (opened.last() as ActivityController<T>).recreate().get()
    }

    fun touch(activity: Activity, id: Int) = touch(activity.findViewById<View>(id))

    fun touch(view: View) {
        check(view.isShown && view.isEnabled) { "nobody can touch $view" }
        view.performClick()
    }

    fun type(activity: Activity, id: Int, words: String) = activity.findViewById<EditText>(id).setText(words)

    fun text(activity: Activity, id: Int) = activity.findViewById<TextView>(id).text.toString()

    fun shows(activity: Activity, id: Int) = activity.findViewById<View>(id).isShown

    fun dialog(): Dialog {
        await("a dialog") { ShadowDialog.getLatestDialog()?.isShowing == true }
        return ShadowDialog.getLatestDialog()
    }

    fun yes() {
        val button: Button = (dialog() as AlertDialog).getButton(DialogInterface.BUTTON_POSITIVE)
        button.performClick()
    }

    fun await(what: String, condition: () -> Boolean) = app.await(what, condition = condition)

    fun <T> asked(block: suspend (Parts) -> T): T = runBlocking { block(app.parts) }

    fun writeNotes() = asked { parts -> NotesTestApp.NOTES.forEach { parts.learner.write(it) } }

    fun closeAll() {
        opened.forEach { it.pause().stop().destroy() }
        opened.clear()
    }

    /** WorkManager and the models leave before Robolectric takes the application away under their threads. */
    fun leave() {
        closeAll()
        HotPowerManager.headroom = 0f
        User(app).leave()
        asked { it.giveMemoryBack().await() }
    }
}
