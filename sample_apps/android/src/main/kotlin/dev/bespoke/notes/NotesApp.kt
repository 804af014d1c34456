// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.notes

import android.app.Application
import android.content.ComponentCallbacks2
import android.content.Context
import androidx.work.Configuration
import dev.bespoke.Prompt
import dev.bespoke.android.AppBundle
import dev.bespoke.android.Learning
import dev.bespoke.android.NotificationTexts

/** Whoever has the app's parts: the application. Tests have another one, with another bundle. */
interface HasParts {
    val parts: Parts
}

val Context.parts: Parts get() = (applicationContext as HasParts).parts

/** The training process makes one too: nothing here is made before it is asked for. */
class NotesApp : Application(), HasParts, Configuration.Provider {
    override val parts by lazy { Parts(this, learning(AppBundle(asset = "bundle.zip")), Prompt::user) }

    /** WorkManager is initialised when it is first used, and so not in the training process. */
    override val workManagerConfiguration: Configuration get() = Configuration.Builder().build()

    override fun onTrimMemory(level: Int) {
        super.onTrimMemory(level)
        if (level >= ComponentCallbacks2.TRIM_MEMORY_UI_HIDDEN) parts.giveMemoryBack()
    }
}

/** What is learned in this app: the words of its notification are kept with the scheduled work, in the language of that moment. */
fun Context.learning(bundle: AppBundle) = Learning(
    bundle,
    texts = NotificationTexts(
        getString(R.string.notification_title), getString(R.string.notification_stop), getString(R.string.notification_channel),
    ),
)
