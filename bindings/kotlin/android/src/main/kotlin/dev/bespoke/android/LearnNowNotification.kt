// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.android

import android.app.Notification
import android.app.NotificationChannel
import android.app.NotificationManager
import android.content.Context
import android.content.pm.ServiceInfo
import android.os.Build
import androidx.work.ForegroundInfo
import androidx.work.WorkManager
import java.util.UUID

/** What is shown while the user waits for "learn now": how far it is, and a button that stops it. */
internal object LearnNowNotification {
    private const val CHANNEL = "dev.bespoke.learning"
    private const val ID = 0x6265

    fun info(context: Context, work: UUID, texts: NotificationTexts, progress: SliceProgress?): ForegroundInfo {
        val manager = context.getSystemService(NotificationManager::class.java)
        manager.createNotificationChannel(NotificationChannel(CHANNEL, texts.channel, NotificationManager.IMPORTANCE_LOW))
        val stop = WorkManager.getInstance(context).createCancelPendingIntent(work)
        val notification = Notification.Builder(context, CHANNEL)
            .setSmallIcon(android.R.drawable.stat_notify_sync)
            .setContentTitle(texts.title)
            .setProgress(progress?.steps?.toInt() ?: 0, progress?.step?.toInt() ?: 0, (progress?.steps ?: 0) == 0L)
            .setOnlyAlertOnce(true)
            .setOngoing(true)
            .addAction(Notification.Action.Builder(null, texts.stop, stop).build())
            .build()
        return if (Build.VERSION.SDK_INT >= Build.VERSION_CODES.Q) {
            ForegroundInfo(ID, notification, ServiceInfo.FOREGROUND_SERVICE_TYPE_DATA_SYNC)
        } else {
            ForegroundInfo(ID, notification)
        }
    }
}
