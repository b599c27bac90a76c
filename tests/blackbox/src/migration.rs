//! A move of a guest under test: the object that asks for it, how it ends, and what the guest's object says about it.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::cluster::{GUESTS, wait};
use crate::guest::Guest;

/// For a move of a small guest on a busy machine without KVM.
const PATIENCE: u64 = 120;

/// A `VirtualMachineInstanceMigration`.
#[derive(Clone)]
pub struct Migration {
    guest: Guest,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// How a move ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// `Succeeded` or `Failed`; `Gone` when the object was deleted before it was seen in either.
    pub phase: String,
    /// The copy of the guest's record.
    pub state: Value,
}

impl Ended {
    /// Why it failed.
    pub fn reason(&self) -> &str {
        self.state["failureReason"].as_str().unwrap_or_default()
    }
}

impl Guest {
    /// Asks for a move.
    pub async fn migrate(&self) -> Result<Migration> {
        self.migrate_with(json!({}), json!({})).await
    }

    /// Asks for a move, with more in the spec and with annotations.
    pub async fn migrate_with(&self, more: Value, annotations: Value) -> Result<Migration> {
        let mut spec = more;
        spec["vmiName"] = json!(self.name);
        let object = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
            "metadata": {"generateName": format!("move-{}-", self.name), "annotations": annotations},
            "spec": spec,
        });
        let path = self.scene.path(GUESTS, "virtualmachineinstancemigrations");
        let created = self.scene.cluster.create(&path, &object).await?;
        let field = |name: &str| created["metadata"][name].as_str().unwrap_or_default().to_owned();
        Ok(Migration { guest: self.clone(), name: field("name"), uid: field("uid") })
    }

    /// Moves the guest, which has to succeed, and returns how it went.
    pub async fn moved(&self) -> Result<Ended> {
        let before = self.node().await?;
        let ended = self.migrate().await?.end(PATIENCE).await?;
        if ended.phase != "Succeeded" {
            bail!("the move of {} is {}: {}", self.name, ended.phase, ended.reason());
        }
        let after = self.node().await?;
        if after == before {
            bail!("the move of {} succeeded, and it is still on {before}", self.name);
        }
        Ok(ended)
    }

    /// The node it is on.
    pub async fn node(&self) -> Result<String> {
        let guest = self.get().await?;
        Ok(guest["status"]["nodeName"].as_str().context("the guest has no node")?.to_owned())
    }

    /// `status.migrationState`
    pub async fn record(&self) -> Result<Value> {
        Ok(self.get().await?["status"]["migrationState"].clone())
    }

    /// All launcher pods, the one on the guest's node first.
    pub async fn pods(&self) -> Result<Vec<Value>> {
        let node = self.get().await?["status"]["nodeName"].clone();
        let pods = self.scene.cluster.get(&self.scene.path("/api/v1", "pods")).await?;
        let owned = |pod: &&Value| {
            let owners = pod["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|all| all.iter().any(|one| one["uid"] == self.uid.as_str()))
        };
        let mut pods: Vec<Value> = pods["items"].as_array().into_iter().flatten().filter(owned).cloned().collect();
        // One that has ended is not the guest's, wherever it was.
        let is_over = |pod: &Value| matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        pods.sort_by_key(|pod| (is_over(pod), pod["spec"]["nodeName"] != node));
        Ok(pods)
    }

    /// The IPv4 address of the pod that has the guest now.
    pub async fn address(&self) -> Result<String> {
        let pods = self.pods().await?;
        let address = pods.first().and_then(|pod| pod["status"]["podIP"].as_str());
        Ok(address.context("the guest's pod has no address")?.to_owned())
    }
}

impl Migration {
    fn path(&self) -> String {
        self.guest.scene.path(GUESTS, &format!("virtualmachineinstancemigrations/{}", self.name))
    }

    /// The object, if it is still there.
    pub async fn get(&self) -> Result<Option<Value>> {
        self.guest.scene.cluster.find(&self.path()).await
    }

    /// The phase it is in; empty before anybody looked at it.
    pub async fn phase(&self) -> Result<String> {
        let object = self.get().await?.context("the migration is gone")?;
        Ok(object["status"]["phase"].as_str().unwrap_or_default().to_owned())
    }

    /// Waits for one of these phases; ending in another is a failure.
    pub async fn reach(&self, phases: &[&str], seconds: u64) -> Result<Value> {
        wait(&format!("the migration {} to be {}", self.name, phases.join(" or ")), seconds, || async {
            let object = self.get().await?.context("the migration is gone")?;
            let phase = object["status"]["phase"].as_str().unwrap_or_default();
            match phase {
                now if phases.contains(&now) => Ok(Some(object)),
                "Succeeded" | "Failed" => {
                    bail!("it is {phase}: {}", object["status"]["migrationState"]["failureReason"])
                }
                _ => Ok(None),
            }
        })
        .await
    }

    /// Waits for its end, whatever it is.
    pub async fn end(&self, seconds: u64) -> Result<Ended> {
        wait(&format!("the migration {} to end", self.name), seconds, || async {
            let Some(object) = self.get().await? else {
                return Ok(Some(Ended { phase: "Gone".to_owned(), state: Value::Null }));
            };
            let phase = object["status"]["phase"].as_str().unwrap_or_default();
            let is_over = matches!(phase, "Succeeded" | "Failed");
            let state = object["status"]["migrationState"].clone();
            Ok(is_over.then(|| Ended { phase: phase.to_owned(), state }))
        })
        .await
    }

    /// Calls it off, as virtctl does.
    pub async fn cancel(&self) -> Result<()> {
        self.guest.scene.cluster.delete(&self.path()).await
    }

    /// Waits until the object is gone.
    pub async fn gone(&self, seconds: u64) -> Result<()> {
        wait(&format!("the migration {} to be gone", self.name), seconds, || async {
            Ok(self.get().await?.is_none().then_some(()))
        })
        .await
    }

    /// The pod that it made for the guest.
    pub async fn target_pod(&self) -> Result<Option<Value>> {
        let pods = self.guest.pods().await?;
        let is_its = |pod: &Value| pod["metadata"]["labels"]["kubevirt.io/migrationJobUID"] == self.uid.as_str();
        Ok(pods.into_iter().find(is_its))
    }
}
