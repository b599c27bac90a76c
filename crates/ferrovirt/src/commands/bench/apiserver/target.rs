//! A server under measurement: its namespace, the kind that is written, and the connections that all phases use.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{Method, StatusCode};
use kube::config::Kubeconfig;
use serde_json::{Value, json};

use super::super::memory::{self, Memory};
use super::client::{Connection, Endpoint, find_string};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const CRD: &str = "virtualmachineinstances.kubevirt.io";
/// A namespace of 10,000 objects takes a real kube-apiserver a while to empty.
const CLEAN_UP: Duration = Duration::from_secs(300);

/// One server.
pub(crate) struct Target {
    /// The kubeconfig's current context, as the heading of its columns.
    pub(crate) name: String,
    /// Where it is.
    pub(crate) endpoint: Arc<Endpoint>,
    /// Path of the benchmark's instances.
    pub(crate) collection: String,
    /// The version of each object that exists, by number.
    pub(crate) versions: Vec<String>,
    /// One connection per writer.
    pub(crate) connections: Vec<Connection>,
    pids: Vec<i32>,
    namespace: String,
    installed_crd: bool,
}

impl Target {
    /// Reads the kubeconfig; touches nothing yet.
    pub(crate) async fn new(kubeconfig: Kubeconfig, pids: Vec<i32>) -> anyhow::Result<Self> {
        let name = kubeconfig.current_context.clone().unwrap_or_else(|| "server".to_owned());
        // Unique enough: two runs at once on one server have different process ids.
        let namespace = format!("ferrovirt-bench-{}", std::process::id());
        Ok(Self {
            name,
            endpoint: Endpoint::of(kubeconfig).await?,
            collection: format!("/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstances"),
            versions: Vec::new(),
            connections: Vec::new(),
            pids,
            namespace,
            installed_crd: false,
        })
    }

    /// Makes the namespace, the kind where it is missing, and the connections.
    pub(crate) async fn prepare(&mut self, writers: usize) -> anyhow::Result<()> {
        let mut connection = self.endpoint.connect().await?;
        self.install_crd(&mut connection).await?;
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}});
        connection.expect(Method::POST, "/api/v1/namespaces", body.to_string().into()).await?;
        self.wait_for_collection(&mut connection).await?;
        for _ in 0..writers {
            self.connections.push(self.endpoint.connect().await?);
        }
        Ok(())
    }

    async fn install_crd(&mut self, connection: &mut Connection) -> anyhow::Result<()> {
        let (status, _) = connection.send(Method::GET, &format!("{CRDS}/{CRD}"), Bytes::new()).await?;
        if status != StatusCode::NOT_FOUND {
            return Ok(());
        }
        let crds = ferrovirt_api::crds::crds();
        let crd =
            crds.into_iter().find(|crd| crd.metadata.name.as_deref() == Some(CRD)).context("no such definition")?;
        eprintln!("{}: installing {CRD}", self.name);
        self.installed_crd = true;
        let mut body = serde_json::to_value(crd)?;
        body["apiVersion"] = "apiextensions.k8s.io/v1".into();
        body["kind"] = "CustomResourceDefinition".into();
        connection.expect(Method::POST, CRDS, body.to_string().into()).await?;
        Ok(())
    }

    /// A new definition is served a moment after it was accepted.
    async fn wait_for_collection(&self, connection: &mut Connection) -> anyhow::Result<()> {
        let begin = Instant::now();
        loop {
            let (status, answer) =
                connection.send(Method::GET, &format!("{}?limit=1", self.collection), Bytes::new()).await?;
            if status.is_success() {
                return Ok(());
            }
            if begin.elapsed() > Duration::from_secs(30) {
                bail!("{CRD} is not served: {status}: {}", String::from_utf8_lossy(&answer));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// What the server's processes hold, if it is known which they are.
    pub(crate) fn memory(&self) -> anyhow::Result<Option<Memory>> {
        memory::of(&self.pids)
    }

    /// How long the server's processes computed until now, if it is known which they are.
    pub(crate) fn computed(&self) -> anyhow::Result<Option<Duration>> {
        memory::computed(&self.pids)
    }

    /// Where a watch of everything that comes now begins.
    pub(crate) async fn revision(&self, connection: &mut Connection) -> anyhow::Result<String> {
        let list = connection.get(&format!("{}?limit=1", self.collection)).await?;
        let list: Value = serde_json::from_slice(&list)?;
        list["metadata"]["resourceVersion"].as_str().map(str::to_owned).context("the list has no resourceVersion")
    }

    /// Deletes what the benchmark made, and waits until it is gone.
    pub(crate) async fn clean_up(&mut self) -> anyhow::Result<()> {
        self.connections.clear();
        let mut connection = self.endpoint.connect().await?;
        let path = format!("/api/v1/namespaces/{}", self.namespace);
        delete(&mut connection, &path).await?;
        let begin = Instant::now();
        let mut told = begin;
        while exists(&mut connection, &path).await? {
            if begin.elapsed() > CLEAN_UP {
                bail!("the namespace {} is still there after {} s", self.namespace, CLEAN_UP.as_secs());
            }
            if told.elapsed() > Duration::from_secs(5) {
                told = Instant::now();
                eprintln!("{}: waiting until the namespace {} is gone ...", self.name, self.namespace);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        if self.installed_crd {
            delete(&mut connection, &format!("{CRDS}/{CRD}")).await?;
        }
        Ok(())
    }

    /// For the message when cleaning up failed.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }
}

async fn delete(connection: &mut Connection, path: &str) -> anyhow::Result<()> {
    match connection.send(Method::DELETE, path, Bytes::new()).await? {
        // Conflict: it is being deleted already.
        (status, _) if status.is_success() || matches!(status, StatusCode::NOT_FOUND | StatusCode::CONFLICT) => Ok(()),
        (status, answer) => bail!("DELETE {path}: {status}: {}", String::from_utf8_lossy(&answer)),
    }
}

async fn exists(connection: &mut Connection, path: &str) -> anyhow::Result<bool> {
    Ok(connection.send(Method::GET, path, Bytes::new()).await?.0 != StatusCode::NOT_FOUND)
}

/// The version in the answer to a write.
pub(crate) fn version_of(answer: &[u8]) -> anyhow::Result<String> {
    find_string(answer, "\"resourceVersion").map(str::to_owned).context("the answer has no resourceVersion")
}
