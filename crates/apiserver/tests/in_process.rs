//! The server without a socket: kube's client on one side, the in-memory store on the other, and a mounted API group.

use std::sync::Arc;

use ferrovirt_apiserver::auth::UserInfo;
use ferrovirt_apiserver::cluster;
use ferrovirt_apiserver::http::body::RequestBody;
use ferrovirt_apiserver::http::negotiate::Output;
use ferrovirt_apiserver::http::respond::{self, Answer};
use ferrovirt_apiserver::mounts::Mount;
use ferrovirt_apiserver::serve::erase;
use ferrovirt_apiserver::server::{Call, Machine, Peer, Server};
use ferrovirt_apiserver::status::ApiResult;
use ferrovirt_kubernetes::ConfigMap;
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};
use http::{Request, StatusCode};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// A server in memory that ends with the test.
struct Cluster {
    server: Arc<Server>,
    stop: CancellationToken,
    _keys: tempfile::TempDir,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Cluster {
    async fn start() -> Self {
        let keys = tempfile::tempdir().expect("a temporary directory");
        let stop = CancellationToken::new();
        let (server, _keeper) =
            cluster::in_memory(keys.path(), Arc::new(Machine), stop.clone()).await.expect("a server in memory");
        Self { server, stop, _keys: keys }
    }

    /// kube's client as that user; requests are plain function calls.
    fn client(&self, user: UserInfo) -> kube::Client {
        let server = self.server.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (server, peer) = (server.clone(), Peer::Trusted(user.clone()));
            async move { Ok::<_, std::convert::Infallible>(server.handle(request.map(erase), &peer).await) }
        });
        kube::Client::new(service, "default")
    }

    fn admin(&self) -> kube::Client {
        self.client(UserInfo::new("admin", ["system:masters"]))
    }
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"k": value}})).expect("a config map")
}

#[tokio::test]
async fn kube_creates_patches_lists_and_deletes() {
    let cluster = Cluster::start().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.admin());
    let made = maps.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    assert!(made.metadata.uid.is_some());
    let patch = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "2"}});
    let applied = maps.patch("a", &PatchParams::apply("test").force(), &Patch::Apply(patch)).await.unwrap();
    assert_eq!(applied.0.data.unwrap()["k"], "2");
    let stale = maps.replace("a", &PostParams::default(), &made).await.unwrap_err();
    assert!(matches!(&stale, kube::Error::Api(status) if status.code == 409), "{stale}");
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(maps.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn a_watcher_sees_every_change_in_order() {
    let cluster = Cluster::start().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.admin());
    let config = watcher::Config::default().fields("metadata.name=a");
    let mut events = watcher(maps.clone(), config).boxed();
    while !matches!(events.try_next().await.unwrap(), Some(watcher::Event::InitDone)) {}
    maps.create(&PostParams::default(), &config_map("other", "0")).await.unwrap();
    maps.create(&PostParams::default(), &config_map("a", "0")).await.unwrap();
    for value in 1..20 {
        let patch = json!({"data": {"k": value.to_string()}});
        maps.patch("a", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    for value in 0..20 {
        let Some(watcher::Event::Apply(map)) = events.try_next().await.unwrap() else { panic!("expected a change") };
        assert_eq!(map.0.data.unwrap()["k"], value.to_string());
    }
    assert!(
        matches!(events.try_next().await.unwrap(), Some(watcher::Event::Delete(map)) if map.metadata.name.as_deref() == Some("a"))
    );
}

#[tokio::test]
async fn held_events_arrive_when_they_are_released() {
    let cluster = Cluster::start().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.admin());
    let mut events = watcher(maps.clone(), watcher::Config::default().fields("metadata.name=a")).boxed();
    while !matches!(events.try_next().await.unwrap(), Some(watcher::Event::InitDone)) {}
    cluster.server.store.faults().hold("/configmaps");
    maps.create(&PostParams::default(), &config_map("a", "late")).await.unwrap();
    // The write is done and readable; only watchers do not know yet.
    assert!(maps.get_opt("a").await.unwrap().is_some());
    assert!(futures::poll!(events.next()).is_pending());
    cluster.server.store.faults().release("/configmaps");
    assert!(matches!(events.try_next().await.unwrap(), Some(watcher::Event::Apply(_))));
}

#[tokio::test]
async fn rights_are_checked_in_process_too() {
    let cluster = Cluster::start().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client(UserInfo::new("jane", ["system:authenticated"])));
    let error = maps.list(&Default::default()).await.unwrap_err();
    let kube::Error::Api(status) = error else { panic!("not an answer: {error}") };
    assert_eq!(status.code, 403);
    assert!(status.message.contains("User \"jane\" cannot list resource \"configmaps\""), "{}", status.message);
}

/// Answers with what it was asked, by whom.
struct Echo;

impl Mount for Echo {
    fn resources(&self) -> Vec<Value> {
        vec![json!({
            "name": "virtualmachines/start", "singularName": "", "namespaced": true, "kind": "VirtualMachine", "verbs": ["update"],
        })]
    }

    fn serve<'a>(
        &'a self,
        _server: &'a Arc<Server>,
        call: Call,
        _body: RequestBody,
    ) -> BoxFuture<'a, ApiResult<Answer>> {
        Box::pin(async move {
            let path = call.path()?;
            let answer = json!({"name": path.name, "subresource": path.subresource, "user": call.user.name, "verb": call.info.verb});
            Ok(respond::object(StatusCode::ACCEPTED, &Output::JSON, &answer))
        })
    }
}

#[tokio::test]
async fn a_mounted_group_is_served_announced_and_guarded() {
    let cluster = Cluster::start().await;
    cluster.server.mounts.mount("subresources.kubevirt.io", "v1", Arc::new(Echo));
    let put = || {
        let path = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/vm/start";
        Request::put(path).body(Vec::new()).unwrap()
    };
    let answer: Value = cluster.admin().request(put()).await.unwrap();
    assert_eq!(answer, json!({"name": "vm", "subresource": "start", "user": "admin", "verb": "update"}));
    let list: Value = cluster
        .admin()
        .request(Request::get("/apis/subresources.kubevirt.io/v1").body(Vec::new()).unwrap())
        .await
        .unwrap();
    assert_eq!(list["resources"][0]["name"], "virtualmachines/start");
    let jane = cluster.client(UserInfo::new("jane", ["system:authenticated"]));
    let refused = jane.request::<Value>(put()).await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 403), "{refused}");
}
