//! What one case uses: a namespace, what guests said on their consoles, and the details that are shown when it fails.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use serde_json::{Value, json};

use crate::cluster::{Cluster, GUESTS, wait};
use crate::guest::Guest;

/// How much of a console is shown.
const SHOWN: usize = 4000;

/// A case's surroundings. Cheap to clone.
#[derive(Clone)]
pub struct Scene {
    /// The cluster, as its admin.
    pub cluster: Cluster,
    /// The case's own namespace.
    pub namespace: String,
    transcripts: Arc<Mutex<BTreeMap<String, Transcript>>>,
}

/// What a guest wrote to its console.
#[derive(Clone, Default)]
pub struct Transcript(Arc<Mutex<String>>);

impl Transcript {
    /// Adds what came.
    pub fn add(&self, text: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
    }

    fn tail(&self) -> String {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let skipped = all.chars().count().saturating_sub(SHOWN);
        all.chars().skip(skipped).filter(|c| *c == '\n' || !c.is_control()).collect()
    }
}

impl Scene {
    /// A new namespace for the case.
    pub async fn new(cluster: Cluster, case: &str) -> Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let namespace = format!("{}-{:x}", case.replace('/', "-"), now.as_millis() & 0xff_ffff);
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        cluster.create("/api/v1/namespaces", &object).await?;
        let scene = Self { cluster, namespace, transcripts: Arc::default() };
        let account = format!("/api/v1/namespaces/{}/serviceaccounts/default", scene.namespace);
        wait("the namespace's default account", 20, || scene.cluster.find(&account)).await?;
        Ok(scene)
    }

    /// Creates a guest from its manifest.
    pub async fn start(&self, manifest: &Value) -> Result<Guest> {
        let created = self.cluster.create(&self.path(GUESTS, "virtualmachineinstances"), manifest).await?;
        let name = created["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let uid = created["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        Ok(Guest { scene: self.clone(), name, uid })
    }

    /// Creates an object of the core group.
    pub async fn create(&self, resource: &str, object: &Value) -> Result<Value> {
        self.cluster.create(&self.path("/api/v1", resource), object).await
    }

    /// The path of a resource in the case's namespace.
    pub fn path(&self, group: &str, resource: &str) -> String {
        format!("{group}/namespaces/{}/{resource}", self.namespace)
    }

    /// Where a guest's words are kept.
    pub fn transcript(&self, guest: &str) -> Transcript {
        let mut all = self.transcripts.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(guest.to_owned()).or_default().clone()
    }

    /// For a failed case: guests, pods, events and consoles.
    pub async fn details(&self) -> String {
        let mut text = String::new();
        for (title, path) in [
            ("machine", self.path(GUESTS, "virtualmachines")),
            ("guest", self.path(GUESTS, "virtualmachineinstances")),
            ("migration", self.path(GUESTS, "virtualmachineinstancemigrations")),
            ("pod", self.path("/api/v1", "pods")),
            ("claim", self.path("/api/v1", "persistentvolumeclaims")),
        ] {
            for mut item in self.items(&path).await {
                if let Some(metadata) = item["metadata"].as_object_mut() {
                    metadata.remove("managedFields");
                }
                let shown = if title == "pod" { &item["status"] } else { &item };
                let name = item["metadata"]["name"].as_str().unwrap_or_default();
                let yaml = serde_saphyr::to_string(shown).unwrap_or_else(|_| shown.to_string());
                text += &format!("  --- {title} {name}\n{}", indented(&yaml));
            }
        }
        text += "  --- events\n";
        for event in self.items(&self.path("/api/v1", "events")).await {
            let field = |name: &str| event[name].as_str().unwrap_or_default();
            let about = event["involvedObject"]["name"].as_str().unwrap_or_default();
            text += &format!("    {} {} {about}: {}\n", field("type"), field("reason"), field("message"));
        }
        let transcripts = self.transcripts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (guest, transcript) in transcripts {
            text += &format!("  --- console of {guest}\n{}", indented(&transcript.tail()));
        }
        text
    }

    async fn items(&self, path: &str) -> Vec<Value> {
        let list = self.cluster.get(path).await.unwrap_or_default();
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Deletes the namespace with everything in it, and waits until it is gone.
    pub async fn remove(&self) {
        let path = format!("/api/v1/namespaces/{}", self.namespace);
        let gone = async {
            self.cluster.delete(&path).await?;
            wait("the namespace to go", 90, || async { Ok(self.cluster.find(&path).await?.is_none().then_some(())) })
                .await
        };
        if let Err(error) = gone.await {
            println!("note    {} is still there: {error:#}", self.namespace);
        }
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}
