//! A guest under test: its object, its pod, and how it ends.

use anyhow::{Context, Result, bail};
use http::Method;
use serde_json::Value;

use crate::cluster::{GUESTS, SUBRESOURCES, wait};
use crate::console::Console;
use crate::scene::Scene;

/// How long a guest may take to run: its image is there, and nothing is probed a second time.
const START: u64 = 60;

/// A guest.
#[derive(Clone)]
pub struct Guest {
    /// The case it belongs to.
    pub scene: Scene,
    /// Its name.
    pub name: String,
    /// The uid of its object: another guest of this name is another guest.
    pub uid: String,
}

impl Guest {
    fn path(&self) -> String {
        self.scene.path(GUESTS, &format!("virtualmachineinstances/{}", self.name))
    }

    /// The object as it is now.
    pub async fn get(&self) -> Result<Value> {
        self.scene.cluster.get(&self.path()).await
    }

    /// The phase it is in.
    pub async fn phase(&self) -> Result<String> {
        Ok(self.get().await?["status"]["phase"].as_str().unwrap_or_default().to_owned())
    }

    /// Waits until it runs. A final phase is a failure at once.
    pub async fn running(&self) -> Result<Value> {
        self.reach("Running", START).await
    }

    /// Waits for a phase. Any other final phase is a failure at once.
    pub async fn reach(&self, phase: &str, seconds: u64) -> Result<Value> {
        wait(&format!("guest {} to be {phase}", self.name), seconds, || async {
            let guest = self.get().await?;
            match guest["status"]["phase"].as_str().unwrap_or_default() {
                now if now == phase => Ok(Some(guest)),
                now @ ("Succeeded" | "Failed") => {
                    bail!("guest {} is {now}: {}", self.name, guest["status"]["conditions"])
                }
                _ => Ok(None),
            }
        })
        .await
    }

    /// Waits until the status has a condition with this value and returns it.
    pub async fn condition(&self, kind: &str, status: &str, seconds: u64) -> Result<Value> {
        wait(&format!("condition {kind}={status} of guest {}", self.name), seconds, || async {
            let guest = self.get().await?;
            Ok(condition(&guest, kind).filter(|condition| condition["status"] == status).cloned())
        })
        .await
    }

    /// Waits until the status has no such condition.
    pub async fn no_condition(&self, kind: &str, seconds: u64) -> Result<()> {
        wait(&format!("guest {} to have no condition {kind}", self.name), seconds, || async {
            let guest = self.get().await?;
            Ok(condition(&guest, kind).is_none_or(|condition| condition["status"] == "False").then_some(()))
        })
        .await
    }

    /// A console with root logged in.
    pub async fn login(&self) -> Result<Console> {
        self.running().await?;
        let mut console = self.console().await?;
        console.login().await?;
        Ok(console)
    }

    /// The console as it is.
    pub async fn console(&self) -> Result<Console> {
        let transcript = self.scene.transcript(&self.name);
        Console::open(&self.scene.cluster, &self.scene.namespace, &self.name, transcript).await
    }

    /// Asks for something to be done now: `pause`, `unpause`, …
    pub async fn call(&self, action: &str) -> Result<Value> {
        self.subresource(Method::PUT, action).await
    }

    /// Any request to a subresource, without a body.
    pub async fn subresource(&self, method: Method, name: &str) -> Result<Value> {
        let path = self.scene.path(SUBRESOURCES, &format!("virtualmachineinstances/{}/{name}", self.name));
        self.scene.cluster.ask(method, &path, None).await
    }

    /// The launcher pod, if there is one: its owner is the guest.
    pub async fn pod(&self) -> Result<Option<Value>> {
        let pods = self.scene.cluster.get(&self.scene.path("/api/v1", "pods")).await?;
        let owned = |pod: &&Value| {
            pod["metadata"]["ownerReferences"]
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one["uid"] == self.uid.as_str()))
        };
        Ok(pods["items"].as_array().and_then(|pods| pods.iter().find(owned).cloned()))
    }

    /// The pod's first address of a family.
    pub async fn pod_address(&self, v6: bool) -> Result<Option<String>> {
        let pod = self.pod().await?.context("the guest has no pod")?;
        let addresses = pod["status"]["podIPs"].as_array().cloned().unwrap_or_default();
        let of_family = |address: &&str| address.contains(':') == v6;
        Ok(addresses.iter().filter_map(|entry| entry["ip"].as_str()).find(of_family).map(str::to_owned))
    }

    /// The pod's IPv4 address.
    pub async fn pod_address_v4(&self) -> Result<String> {
        self.pod_address(false).await?.context("the pod has no IPv4 address")
    }

    /// Asks for the guest's end, which takes its grace period at most.
    pub async fn delete(&self) -> Result<()> {
        self.scene.cluster.delete(&self.path()).await
    }

    /// Waits until object and pod are gone.
    pub async fn gone(&self, seconds: u64) -> Result<()> {
        wait(&format!("guest {} and its pod to be gone", self.name), seconds, || async {
            let guest = self.scene.cluster.find(&self.path()).await?;
            Ok((guest.is_none() && self.pod().await?.is_none()).then_some(()))
        })
        .await
    }

    /// Follows the guest to the end of its object and returns the last phase it was seen in.
    pub async fn last_phase(&self, seconds: u64) -> Result<String> {
        let path = format!(
            "{}?watch=true&fieldSelector=metadata.name={}&timeoutSeconds={seconds}",
            self.scene.path(GUESTS, "virtualmachineinstances"),
            self.name
        );
        let request = http::Request::builder().uri(path).body(kube::client::Body::empty())?;
        let answer = self.scene.cluster.client.send(request).await?;
        let mut phase = String::new();
        let mut lines = Lines::new(answer.into_body());
        while let Some(line) = lines.next().await? {
            let event: Value = serde_json::from_str(&line)?;
            if let Some(now) = event["object"]["status"]["phase"].as_str() {
                now.clone_into(&mut phase);
            }
            if event["type"] == "DELETED" {
                return Ok(phase);
            }
        }
        bail!("guest {} was not deleted within {seconds} s; its last phase is {phase}", self.name)
    }
}

/// A condition of an object.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// Lines of a body that is still being written.
struct Lines {
    body: kube::client::Body,
    pending: Vec<u8>,
}

impl Lines {
    fn new(body: kube::client::Body) -> Self {
        Self { body, pending: Vec::new() }
    }

    async fn next(&mut self) -> Result<Option<String>> {
        use http_body_util::BodyExt;
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return Ok(Some(String::from_utf8(line)?));
            }
            match self.body.frame().await {
                Some(frame) => {
                    if let Ok(data) = frame?.into_data() {
                        self.pending.extend_from_slice(&data);
                    }
                }
                None => return Ok(None),
            }
        }
    }
}
