//! The cluster that is measured: whether it is free, what the bench puts there, and how that goes away again.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ferrovirt_api::defaults::{Inputs, default_vmi};
use ferrovirt_api::kubevirt::Configuration;
use ferrovirt_api::vmi::{Architecture, VirtualMachineInstancePhase as Phase};
use ferrovirt_api::{KubeVirt, VirtualMachine, VirtualMachineInstance};
use ferrovirt_install::names::CONTROLLER;
use ferrovirt_kubernetes::CustomResourceDefinition;
use ferrovirt_kubernetes::Lease;
use ferrovirt_kubernetes::{Namespace, Node};
use futures::{StreamExt, TryStreamExt};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

/// How long each preparation may take.
const PREPARATION: Duration = Duration::from_secs(60);
/// How long thousands of objects may take to vanish.
const CLEAN_UP: Duration = Duration::from_secs(300);
/// Requests at once when cleaning up.
const CLEANERS: usize = 16;

/// Fails with the reason why the bench's virt-controller must not work here.
pub(super) async fn refuse_if_in_use(client: &Client) -> anyhow::Result<()> {
    let refused = "this cluster cannot be measured";
    let one = ListParams::default().limit(1);
    if let Some(installation) = first::<KubeVirt>(client, &one).await? {
        let (namespace, name) = (installation.namespace().unwrap_or_default(), installation.name_any());
        bail!(
            "{refused}: KubeVirt is installed, as the KubeVirt object {namespace}/{name} says; take a cluster without it"
        );
    }
    let leases = ListParams::default().fields(&format!("metadata.name={CONTROLLER}"));
    let leases = Api::<Lease>::all(client.clone()).list(&leases).await.context("cannot list leases")?;
    let now = Timestamp::now();
    if let Some(held) = leases.items.iter().find(|lease| is_held(lease, now)) {
        let holder = held.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default();
        let namespace = held.namespace().unwrap_or_default();
        bail!(
            "{refused}: {holder} is at work as virt-controller, by the lease {namespace}/{CONTROLLER}; stop it first"
        );
    }
    if let Some(guest) = first::<VirtualMachineInstance>(client, &one).await? {
        bail!("{refused}: it has guests, such as {}, which a virt-controller would start", path(&guest));
    }
    if let Some(machine) = first::<VirtualMachine>(client, &one).await? {
        bail!("{refused}: it has machines, such as {}, which a virt-controller would start", path(&machine));
    }
    if let Some(node) = first::<Node>(client, &one).await? {
        bail!("{refused}: it has nodes, such as {}, which would run the pods; take one without", node.name_any());
    }
    Ok(())
}

/// Some object of a kind, if the cluster knows the kind and has one.
async fn first<K>(client: &Client, one: &ListParams) -> anyhow::Result<Option<K>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    match Api::<K>::all(client.clone()).list(one).await {
        Ok(list) => Ok(list.items.into_iter().next()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(anyhow::Error::new(error).context(format!("cannot list {}", K::plural(&())))),
    }
}

fn path<K: Resource>(object: &K) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

/// Whether somebody renewed the lease within its time.
fn is_held(lease: &Lease, now: Timestamp) -> bool {
    let Some(spec) = &lease.spec else { return false };
    let duration = SignedDuration::from_secs(i64::from(spec.lease_duration_seconds.unwrap_or_default()));
    let renewed = spec.renew_time.as_ref().map(|time| time.0);
    spec.holder_identity.as_ref().is_some_and(|holder| !holder.is_empty())
        && renewed.is_some_and(|renewed| now.duration_since(renewed) < duration)
}

/// The cluster, and what of it is the bench's.
pub(super) struct Cluster {
    /// Talks to it.
    pub(super) client: Client,
    namespace: String,
    installed: Vec<String>,
}

impl Cluster {
    /// Touches nothing yet.
    pub(super) fn new(client: Client) -> Self {
        Self { client, namespace: format!("ferrovirt-bench-{}", std::process::id()), installed: Vec::new() }
    }

    /// The namespace of the guests, and of virt-controller's lease.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Everything that was made, for people who have to remove it.
    pub(super) fn belongings(&self) -> String {
        let definitions = self.installed.iter().map(|name| format!("CustomResourceDefinition {name}"));
        std::iter::once(format!("Namespace {}", self.namespace)).chain(definitions).collect::<Vec<_>>().join(", ")
    }

    /// What guests are called in requests.
    pub(super) fn guests(&self) -> Api<VirtualMachineInstance> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Which API server this is.
    pub(super) async fn server_version(&self) -> anyhow::Result<String> {
        Ok(self.client.apiserver_version().await?.git_version)
    }

    /// Installs the kinds that are missing, and makes the namespace.
    pub(super) async fn prepare(&mut self) -> anyhow::Result<()> {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let mut wanted = Vec::new();
        for definition in ferrovirt_api::crds::crds() {
            let name = definition.name_any();
            if definitions.get_metadata_opt(&name).await?.is_none() {
                if self.installed.is_empty() {
                    eprintln!("installing kinds ...");
                }
                self.installed.push(name.clone());
                definitions.create(&PostParams::default(), &definition).await?;
            }
            wanted.push(name);
        }
        let namespace = serde_json::from_value(json!({"metadata": {"name": self.namespace}}))?;
        Api::<Namespace>::all(self.client.clone()).create(&PostParams::default(), &namespace).await?;
        for name in wanted {
            until(PREPARATION, &format!("the kind {name} is served"), async || {
                Ok(definitions.get_opt(&name).await?.as_ref().is_some_and(is_established))
            })
            .await?;
        }
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &self.namespace);
        // Pods are refused in a namespace without it.
        until(PREPARATION, "the namespace has its default service account", async || {
            Ok(accounts.get_opt("default").await?.is_some())
        })
        .await
    }

    /// Waits until the bench's virt-controller has the lease.
    pub(super) async fn until_led(&self) -> anyhow::Result<()> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        until(PREPARATION, "virt-controller has the lease", async || {
            Ok(leases.get_opt(CONTROLLER).await?.is_some_and(|lease| is_held(&lease, Timestamp::now())))
        })
        .await
    }

    /// One guest on its whole way.
    pub(super) async fn start_and_remove_one(&self) -> anyhow::Result<()> {
        let (guests, name) = (self.guests(), "warm-up");
        guests.create(&PostParams::default(), &guest(name)?).await?;
        until(PREPARATION, "virt-controller has placed a first guest", async || {
            let status = guests.get(name).await?.status;
            Ok(status.and_then(|status| status.phase) == Some(Phase::Scheduling))
        })
        .await?;
        guests.delete(name, &DeleteParams::default()).await?;
        until(PREPARATION, "virt-controller has removed a first guest", async || {
            Ok(guests.get_metadata_opt(name).await?.is_none())
        })
        .await
    }

    /// Deletes what [`belongs`](Self::belongings) to the bench and waits until it is gone. No virt-controller may run any more.
    pub(super) async fn clean_up(&self) -> anyhow::Result<()> {
        if self.client_knows_guests().await? {
            self.release_guests().await?;
        }
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        delete(&namespaces, &self.namespace).await?;
        until(CLEAN_UP, &format!("the namespace {} is gone", self.namespace), async || {
            Ok(namespaces.get_metadata_opt(&self.namespace).await?.is_none())
        })
        .await?;
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        for name in &self.installed {
            delete(&definitions, name).await?;
        }
        for name in &self.installed {
            until(CLEAN_UP, &format!("the kind {name} is gone"), async || {
                Ok(definitions.get_metadata_opt(name).await?.is_none())
            })
            .await?;
        }
        Ok(())
    }

    async fn client_knows_guests(&self) -> anyhow::Result<bool> {
        match self.guests().list_metadata(&ListParams::default().limit(1)).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes the finalizers away that virt-controller would take away.
    async fn release_guests(&self) -> anyhow::Result<()> {
        let guests = self.guests();
        let held = guests.list_metadata(&ListParams::default()).await?.items;
        let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        let released = futures::stream::iter(held).map(|guest| {
            let (guests, release) = (&guests, &release);
            async move {
                match guests.patch_metadata(&guest.name_any(), &PatchParams::default(), release).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                    released => released.map(drop),
                }
            }
        });
        released.buffer_unordered(CLEANERS).try_collect::<()>().await.context("cannot release the guests")
    }
}

async fn delete<K>(api: &Api<K>, name: &str) -> anyhow::Result<()>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    match api.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        deleted => deleted.map(drop).with_context(|| format!("cannot delete {name}")),
    }
}

fn is_established(definition: &CustomResourceDefinition) -> bool {
    let conditions = definition.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Established" && condition.status == "True")
}

/// Asks again and again, and says so when it takes long.
async fn until(
    limit: Duration,
    what: &str,
    mut is_so: impl AsyncFnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let begin = Instant::now();
    let mut told = begin;
    while !is_so().await? {
        if begin.elapsed() > limit {
            bail!("waited {} s until {what}", limit.as_secs());
        }
        if told.elapsed() > Duration::from_secs(2) {
            told = Instant::now();
            eprintln!("waiting until {what} ...");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// A usual guest with two disks and a network card, and with all that virt-api would have filled in.
pub(super) fn guest(name: &str) -> anyhow::Result<VirtualMachineInstance> {
    let mut guest: VirtualMachineInstance = serde_json::from_value(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": name, "labels": {"app": "bench"}},
        "spec": {
            "domain": {
                "cpu": {"cores": 1},
                "memory": {"guest": "128Mi"},
                "devices": {
                    "disks": [
                        {"name": "root", "disk": {"bus": "virtio"}},
                        {"name": "seed", "disk": {"bus": "virtio"}},
                    ],
                    "interfaces": [{"name": "default", "masquerade": {}}],
                },
            },
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [
                {"name": "root", "containerDisk": {"image": "ferrovirt.io/guest:bench"}},
                {"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config\nhostname: bench\n"}},
            ],
        },
    }))?;
    let identity = name.bytes().fold(1_u128, |sum, byte| sum.wrapping_mul(257).wrapping_add(u128::from(byte)));
    let inputs = Inputs { now: Time(Timestamp::now()), uuid: identity, architecture: Architecture::Amd64 };
    default_vmi(&mut guest, &Configuration::default(), &inputs);
    Ok(guest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_held_until_its_time_is_over() {
        let lease = |holder: &str| -> Lease {
            let spec = json!({
                "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z",
            });
            serde_json::from_value(json!({"spec": spec})).unwrap()
        };
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        assert!(is_held(&lease("a"), at("2026-01-01T00:00:14Z")));
        assert!(!is_held(&lease("a"), at("2026-01-01T00:00:15Z")));
        assert!(!is_held(&lease(""), at("2026-01-01T00:00:01Z")), "given back");
        assert!(!is_held(&Lease::default(), at("2026-01-01T00:00:01Z")));
    }

    #[test]
    fn guests_have_what_virt_api_fills_in() {
        let guest = guest("a").unwrap();
        assert_eq!(guest.status.unwrap().phase, Some(Phase::Pending));
        assert!(!guest.metadata.finalizers.unwrap().is_empty());
        assert!(guest.spec.domain.firmware.is_some());
    }
}
