//! What one case uses. What is changed for the whole cluster is taken back, however the case ends.

use anyhow::{Context, Result, bail};
use blackbox::cluster::{GUESTS, wait};
use blackbox::guest::Guest;
use blackbox::manifest::Manifest;
use blackbox::program::Program;
use blackbox::scene::Scene;
use serde_json::{Value, json};

const POLICIES: &str = "/apis/migrations.kubevirt.io/v1alpha1/migrationpolicies";
/// The label by which a case's policies find its guests.
pub(crate) const CASE: &str = "case";

/// A case's surroundings. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Stage {
    pub(crate) scene: Scene,
    pub(crate) kubectl: Program,
    pub(crate) virtctl: Program,
    /// How often a guest moves in cases of many moves.
    pub(crate) moves: u32,
}

impl Stage {
    /// Starts a guest that works; its records are on an empty disk, which moves with it.
    pub(crate) async fn worker(&self, name: &str, commands: &[&str]) -> Result<Guest> {
        let manifest = self.labelled(Manifest::working(name, json!({"emptyDisk": {"capacity": "16Mi"}}), commands));
        let guest = self.scene.start(manifest.json()).await?;
        guest.working().await?;
        guest.condition("LiveMigratable", "True", 30).await?;
        Ok(guest)
    }

    /// The case's policies are for this guest.
    pub(crate) fn labelled(&self, manifest: Manifest) -> Manifest {
        manifest.with("/metadata/labels", json!({CASE: self.scene.namespace}))
    }

    /// Does something while a policy is there for the case's guests.
    pub(crate) async fn with_policy<T>(&self, spec: Value, work: impl Future<Output = Result<T>>) -> Result<T> {
        let name = self.scene.namespace.clone();
        let mut spec = spec;
        spec["selectors"] = json!({"virtualMachineInstanceSelector": {CASE: name}});
        let object = json!({
            "apiVersion": "migrations.kubevirt.io/v1alpha1", "kind": "MigrationPolicy", "metadata": {"name": name}, "spec": spec,
        });
        self.scene.cluster.create(POLICIES, &object).await?;
        let done = work.await;
        self.scene.cluster.delete(&format!("{POLICIES}/{name}")).await?;
        done
    }

    /// Does something while the installation has these settings of migrations. Only in cases that run alone.
    pub(crate) async fn with_settings<T>(&self, settings: Value, work: impl Future<Output = Result<T>>) -> Result<T> {
        let all = self.scene.cluster.get(&format!("{GUESTS}/kubevirts")).await?;
        let metadata = &all["items"][0]["metadata"];
        let name = metadata["name"].as_str().context("there is no KubeVirt object")?;
        let path =
            format!("{GUESTS}/namespaces/{}/kubevirts/{name}", metadata["namespace"].as_str().unwrap_or_default());
        let before = all["items"][0]["spec"]["configuration"]["migrations"].clone();
        let change = |settings: &Value| json!({"spec": {"configuration": {"migrations": settings}}});
        self.scene.cluster.patch(&path, &change(&settings)).await?;
        let done = work.await;
        // A merge patch takes a field away by its null.
        let mut back = before;
        for field in settings.as_object().into_iter().flatten().map(|(field, _)| field) {
            if back[field].is_null() {
                back[field] = Value::Null;
            }
        }
        self.scene.cluster.patch(&path, &change(&back)).await?;
        done
    }

    /// The cluster's nodes that take pods.
    pub(crate) async fn nodes(&self) -> Result<Vec<String>> {
        let nodes = self.scene.cluster.get("/api/v1/nodes").await?;
        let names =
            nodes["items"].as_array().into_iter().flatten().filter_map(|node| node["metadata"]["name"].as_str());
        let names: Vec<String> = names.map(str::to_owned).collect();
        if names.len() < 2 {
            bail!("the cluster has one node: start it with --nodes 2");
        }
        Ok(names)
    }

    /// All migrations of the namespace.
    pub(crate) async fn migrations(&self) -> Result<Vec<Value>> {
        let path = self.scene.path(GUESTS, "virtualmachineinstancemigrations");
        let list = self.scene.cluster.get(&path).await?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// Waits until the guest has one pod only, the one that it is in.
    pub(crate) async fn tidy(&self, guest: &Guest) -> Result<()> {
        wait(&format!("guest {} to have one pod", guest.name), 60, || async {
            let pods = guest.pods().await?;
            let is_over = |pod: &&Value| matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
            Ok((pods.iter().filter(|pod| !is_over(pod)).count() == 1).then_some(()))
        })
        .await
    }
}
