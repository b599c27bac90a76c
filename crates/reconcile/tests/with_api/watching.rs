//! Caches filled by real watches.

use std::{collections::BTreeMap, time::Duration};

use ferrovirt_kubernetes::json;
use ferrovirt_reconcile::{Cache, Watches};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    core::{ObjectMeta, PartialObjectMeta},
    runtime::watcher,
};

use crate::fake::{Effect, FakeApi};

fn config_map(name: &str, colour: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.into()), namespace: Some("shop".into()), ..ObjectMeta::default() };
    ConfigMap { metadata, data: Some(BTreeMap::from([("colour".into(), colour.into())])), ..ConfigMap::default() }
}

#[tokio::test(start_paused = true)]
async fn a_cache_follows_its_api_through_breaks_and_refusals() {
    let api = FakeApi::default();
    api.disturb("GET /api/v1/configmaps", 3, Effect::Refuse(503, "ServiceUnavailable"));
    api.put("configmaps", &config_map("a", "red"));
    let mut builder = Cache::<ConfigMap>::builder();
    let by_colour = builder.index(|map: &ConfigMap| map.data.as_ref().and_then(|data| data.get("colour").cloned()));
    let cache = builder.build();
    let mut watches = Watches::new();
    watches.add(Api::all(api.client()), watcher::Config::default(), &cache).unwrap();
    let synced = watches.synced();
    let test = async {
        synced.await;
        assert_eq!(cache.count_by(&by_colour, "red"), 1);
        api.put("configmaps", &config_map("b", "red"));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(cache.count_by(&by_colour, "red"), 2);

        // A watch that breaks goes on where it was; one that is too old lists again.
        for forget in [false, true] {
            api.break_watches(forget);
            api.remove_silently("configmaps", "shop", "never-there");
            api.put("configmaps", &config_map("b", if forget { "blue" } else { "green" }));
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        assert_eq!((cache.count_by(&by_colour, "red"), cache.count_by(&by_colour, "blue")), (1, 1));
        assert_eq!(cache.count_by(&by_colour, "green"), 0);
        api.remove("configmaps", "shop", "a");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(cache.len(), 1);
    };
    tokio::select! {
        () = watches.run() => panic!("watches end"),
        () = test => {}
    }
}

#[tokio::test]
async fn a_kind_is_watched_once() {
    let api = FakeApi::default();
    let cache = Cache::<ConfigMap>::builder().build();
    let mut watches = Watches::new();
    watches.add(Api::all(api.client()), watcher::Config::default(), &cache).unwrap();
    let again = watches.add(Api::all(api.client()), watcher::Config::default(), &cache).unwrap_err();
    assert_eq!(again.to_string(), "/api/v1/configmaps is already watched by this process: share its cache");
    // The same kind as metadata would be the second watch of the same objects.
    let partial = Cache::<PartialObjectMeta<ConfigMap>>::builder().build();
    watches.add_read(Api::all(api.client()), watcher::Config::default(), &partial, json::read).unwrap_err();
    watches.add(Api::all(api.client()), watcher::Config::default().labels("a=b"), &cache).unwrap();
}
