// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.smallest;

import android.app.Application;
import dev.bespoke.android.AppBundle;
import dev.bespoke.android.Learning;
import dev.bespoke.android.NotificationTexts;
import dev.bespoke.federation.LearningTogether;
import dev.bespoke.federation.Together;

/** An app whose users learn together. */
public class App extends Application {
    @Override
    public void onCreate() {
        super.onCreate();
        AppBundle bundle = new AppBundle("bundle.zip", null, null, null, false);
        Learning learning = new Learning(bundle, "user", null, true, 540, 20, new NotificationTexts("a", "b", "c"));
        Together.INSTANCE.schedule(this, new LearningTogether(learning, "https://learn.example", null, true, 1, 24, 540));
    }
}
