//! [`Watches`]: all watches of a process, run and awaited together.

use std::{collections::BTreeSet, fmt::Debug};

use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, join_all},
    stream::FuturesUnordered,
};
use kube::{
    Api, Resource,
    runtime::watcher::{self, watcher},
};
use serde::de::DeserializeOwned;

use super::Cache;

/// The same objects would be watched twice by one process.
#[derive(Debug, thiserror::Error)]
#[error("{0} is already watched by this process: share its cache")]
pub struct DuplicateWatch(String);

/// The watches of one process. Nothing is watched before [`run`](Self::run) is polled.
#[derive(Default)]
pub struct Watches {
    identities: BTreeSet<String>,
    running: Vec<BoxFuture<'static, ()>>,
    synced: Vec<BoxFuture<'static, ()>>,
}

impl Watches {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets a watch of everything that `api` and `config` select fill `cache`.
    ///
    /// With an `Api<PartialObjectMeta<K>>` the server sends metadata only: labels, owners and versions without the rest.
    pub fn add<K>(&mut self, api: Api<K>, config: watcher::Config, cache: &Cache<K>) -> Result<(), DuplicateWatch>
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    {
        let what = self.claim(api.resource_url(), &config)?;
        let (running, synced) = (cache.clone(), cache.clone());
        self.running.push(async move { running.run(&what, watcher(api, config)).await }.boxed());
        self.synced.push(async move { synced.synced().await }.boxed());
        Ok(())
    }

    /// A future that is ready when every cache has seen its first listing. Take it before [`run`](Self::run).
    pub fn synced(&mut self) -> impl Future<Output = ()> + Send + 'static {
        join_all(std::mem::take(&mut self.synced)).map(|_| ())
    }

    /// Runs all watches; ends only by being dropped. Whatever wakes the caller, only those with news are looked at.
    pub async fn run(self) {
        let mut running: FuturesUnordered<_> = self.running.into_iter().collect();
        while running.next().await.is_some() {}
    }

    fn claim(&mut self, url: &str, config: &watcher::Config) -> Result<String, DuplicateWatch> {
        let selectors = [&config.label_selector, &config.field_selector];
        let mut what = url.to_owned();
        for selector in selectors.into_iter().flatten() {
            what.push('?');
            what.push_str(selector);
        }
        if self.identities.insert(what.clone()) { Ok(what) } else { Err(DuplicateWatch(what)) }
    }
}
