//! [`Watches`]: all watches of a process, run and awaited together.

use std::collections::BTreeSet;

use ferrovirt_kubernetes::json::FromJson;
use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, join_all},
    stream::FuturesUnordered,
};
use kube::{Api, Resource, runtime::watcher};

use super::{Cache, cache::Read};

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
    pub fn add<K>(&mut self, api: Api<K>, config: watcher::Config, cache: &Cache<K>) -> Result<(), DuplicateWatch>
    where
        K: Resource + FromJson + Send + Sync + 'static,
    {
        self.add_read(api, config, cache, K::from_json)
    }

    /// The same for a kind that has no code of its own for reading whole objects: `json::read` is compiled for it where
    /// this is called.
    pub fn add_read<K>(
        &mut self,
        api: Api<K>,
        config: watcher::Config,
        cache: &Cache<K>,
        read: Read<K>,
    ) -> Result<(), DuplicateWatch>
    where
        K: Resource + Send + Sync + 'static,
    {
        let what = self.claim(api.resource_url(), &config)?;
        let (running, synced) = (cache.clone(), cache.clone());
        self.running.push(async move { running.watch(&what, api, config, read).await }.boxed());
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
