// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.smallest;

import android.app.Application;
import dev.bespoke.android.AppBundle;
import dev.bespoke.android.Learning;
import dev.bespoke.android.NotificationTexts;
import dev.bespoke.android.Personalization;

/** An app with a bundle in it that learns in the background. */
public class App extends Application {
    @Override
    public void onCreate() {
        super.onCreate();
        AppBundle bundle = new AppBundle("bundle.zip", null, null, null, false);
        Personalization.INSTANCE.schedule(this, new Learning(bundle, "user", null, true, 540, 20, new NotificationTexts("a", "b", "c")));
    }
}
