// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.notes

import android.graphics.Bitmap
import android.graphics.Canvas
import android.graphics.Rect
import android.view.View
import android.view.ViewGroup
import java.io.File

/** What a window shows, as pixels. */
class Picture(val window: View) {
    val pixels: Bitmap = Bitmap.createBitmap(window.width, window.height, Bitmap.Config.ARGB_8888).also { window.draw(Canvas(it)) }

    fun save(name: String) = File(FOLDER.apply { mkdirs() }, "$name.png").outputStream().use { file ->
        check(pixels.compress(Bitmap.CompressFormat.PNG, 100, file))
    }

    private companion object {
        val FOLDER = File(checkNotNull(System.getProperty("notes.screenshots")))
    }
}

/** Where it is in the picture of its window, as far as it can be seen. */
fun View.seen(): Rect = Rect().also { if (!getGlobalVisibleRect(it)) it.setEmpty() }

/** This view and all in it that are shown. */
fun View.shown(): Sequence<View> = sequence {
    if (visibility != View.VISIBLE) return@sequence
    yield(this@shown)
    if (this@shown is ViewGroup) for (at in 0 until childCount) yieldAll(getChildAt(at).shown())
}
