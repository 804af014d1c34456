// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.smallest;

import android.app.Application;
import dev.bespoke.delivery.Archive;
import dev.bespoke.delivery.BundleDownload;
import dev.bespoke.delivery.Delivery;
import java.util.Collections;

/** An app that downloads its bundle. */
public class App extends Application {
    @Override
    public void onCreate() {
        super.onCreate();
        String hash = "0".repeat(64);
        Archive weights = new Archive("https://example.com/weights.zip", hash, 1), method = new Archive("https://example.com/method.zip", hash, 1);
        Delivery.INSTANCE.request(this, new BundleDownload(weights, method, Collections.emptyList(), "chat", null, null));
    }
}
