//! Reads the objects around a machine. What may not be read is noted, and the judgement goes on without it.

use jiff::Timestamp;
use serde_json::Value;

use super::object::{is_leaving, name, text, time};
use super::snapshot::{Moving, Named, Snapshot};
use crate::session::{Refused, Session};
use crate::target::Kind;

/// Everything around the machine or guest of this name.
pub(super) async fn collect(session: &Session, machine: &str) -> anyhow::Result<Snapshot> {
    let namespace = session.namespace.clone();
    let object = |kind: Kind| format!("{}/{machine}", Session::collection(&namespace, kind.resource()));
    let mut seen = Snapshot {
        name: machine.to_owned(),
        now: Timestamp::now(),
        vm: session.find(&object(Kind::Machine)).await?,
        vmi: session.find(&object(Kind::Guest)).await?,
        namespace,
        pods: Vec::new(),
        migrations: Vec::new(),
        moving: Vec::new(),
        settings: None,
        target_node: None,
        node: None,
        budgets: Vec::new(),
        is_node_missing: false,
        claims: Vec::new(),
        data_volumes: Vec::new(),
        events: Vec::new(),
        unseen: Vec::new(),
    };
    let reader = Reader { session };
    reader.pods(&mut seen).await?;
    reader.node(&mut seen).await?;
    reader.migrations(&mut seen).await?;
    reader.sources(&mut seen).await?;
    reader.events(&mut seen).await?;
    Ok(seen)
}

struct Reader<'a> {
    session: &'a Session,
}

impl Reader<'_> {
    /// An object that may be missing, or that the user may not see.
    async fn look(&self, path: &str, what: &str, seen: &mut Snapshot) -> anyhow::Result<Option<Value>> {
        match self.session.find(path).await {
            Err(refused) if refused.code() == Some(403) => {
                seen.unseen.push(format!("you may not read {what}: trouble there is not seen"));
                Ok(None)
            }
            Err(Refused::Unreachable { url, cause }) => Err(Refused::Unreachable { url, cause }.into()),
            other => Ok(other.unwrap_or_default()),
        }
    }

    /// The launcher pods that the guest owns. Labels select, the owner's uid proves.
    async fn pods(&self, seen: &mut Snapshot) -> anyhow::Result<()> {
        let Some(uid) = seen.vmi.as_ref().and_then(|vmi| text(vmi, "/metadata/uid")).map(str::to_owned) else {
            return Ok(());
        };
        let path = format!("/api/v1/namespaces/{}/pods?labelSelector=kubevirt.io%2Fcreated-by%3D{uid}", seen.namespace);
        let list = self.look(&path, "pods", seen).await?.unwrap_or_default();
        let owned = |pod: &&Value| {
            let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
            owners.into_iter().flatten().any(|owner| owner["uid"] == uid.as_str())
        };
        let mut pods: Vec<Value> = list["items"].as_array().into_iter().flatten().filter(owned).cloned().collect();
        pods.sort_by_key(|pod| (is_leaving(pod), std::cmp::Reverse(time(pod, "/metadata/creationTimestamp"))));
        seen.pods = pods;
        Ok(())
    }

    async fn node(&self, seen: &mut Snapshot) -> anyhow::Result<()> {
        let of_guest = seen.vmi.as_ref().and_then(|vmi| text(vmi, "/status/nodeName"));
        let Some(node) = of_guest.or_else(|| seen.pod().and_then(|pod| text(pod, "/spec/nodeName"))).map(str::to_owned)
        else {
            return Ok(());
        };
        let before = seen.unseen.len();
        seen.node = self.look(&format!("/api/v1/nodes/{node}"), "nodes", seen).await?;
        seen.is_node_missing = seen.node.is_none() && seen.unseen.len() == before;
        if seen.node.as_ref().is_some_and(|node| node["spec"]["unschedulable"] == true) {
            let path = format!("/apis/policy/v1/namespaces/{}/poddisruptionbudgets", seen.namespace);
            let budgets = self.look(&path, "disruption budgets", seen).await?.unwrap_or_default();
            seen.budgets = budgets["items"].as_array().cloned().unwrap_or_default();
        }
        Ok(())
    }

    /// The moves of the guest; and who else moves, if this one waits.
    async fn migrations(&self, seen: &mut Snapshot) -> anyhow::Result<()> {
        let Some(vmi) = &seen.vmi else { return Ok(()) };
        let target = text(vmi, "/status/migrationState/targetNode").map(str::to_owned);
        let guest = name(vmi).to_owned();
        let path = format!(
            "{}?labelSelector=kubevirt.io%2Fvmi-name%3D{guest}",
            Session::collection(&seen.namespace, "virtualmachineinstancemigrations")
        );
        let list = self.look(&path, "migrations", seen).await?.unwrap_or_default();
        let mut migrations: Vec<Value> = list["items"].as_array().cloned().unwrap_or_default();
        migrations.sort_by_key(|migration| std::cmp::Reverse(time(migration, "/metadata/creationTimestamp")));
        seen.migrations = migrations;
        if let Some(node) = target {
            seen.target_node = self.look(&format!("/api/v1/nodes/{node}"), "nodes", seen).await?;
        }
        let waits = |migration: &Value| matches!(text(migration, "/status/phase"), None | Some("Pending"));
        if seen.migrations.iter().any(waits) {
            self.queue(seen).await?;
        }
        Ok(())
    }

    /// Who holds the slots for moves, and how many there are.
    async fn queue(&self, seen: &mut Snapshot) -> anyhow::Result<()> {
        let settings = self.look("/apis/kubevirt.io/v1/kubevirts", "the installation", seen).await?.unwrap_or_default();
        seen.settings = settings.pointer("/items/0/spec/configuration/migrations").cloned();
        let all =
            self.look("/apis/kubevirt.io/v1/virtualmachineinstancemigrations", "migrations of others", seen).await?;
        let guests = self.look("/apis/kubevirt.io/v1/virtualmachineinstances", "guests of others", seen).await?;
        let (Some(all), Some(guests)) = (all, guests) else { return Ok(()) };
        let node_of = |namespace: &str, guest: &str| {
            let is_it = |vmi: &&Value| name(vmi) == guest && text(vmi, "/metadata/namespace") == Some(namespace);
            let guests = guests["items"].as_array().into_iter().flatten();
            guests.filter(is_it).find_map(|vmi| text(vmi, "/status/nodeName")).unwrap_or_default().to_owned()
        };
        for migration in all["items"].as_array().into_iter().flatten() {
            let phase = text(migration, "/status/phase").unwrap_or("Pending");
            if matches!(phase, "Pending" | "Succeeded" | "Failed") {
                continue;
            }
            let namespace = text(migration, "/metadata/namespace").unwrap_or_default();
            let guest = text(migration, "/spec/vmiName").unwrap_or_default();
            seen.moving.push(Moving {
                uid: text(migration, "/metadata/uid").unwrap_or_default().to_owned(),
                guest: format!("{namespace}/{guest}"),
                node: node_of(namespace, guest),
            });
        }
        Ok(())
    }

    async fn sources(&self, seen: &mut Snapshot) -> anyhow::Result<()> {
        let (claims, data_volumes) = seen.named_sources();
        let before = seen.unseen.len();
        for claim in claims {
            let path = format!("/api/v1/namespaces/{}/persistentvolumeclaims/{}", seen.namespace, claim.name);
            let object = self.look(&path, "claims", seen).await?;
            seen.claims.push(Named { object, ..claim });
        }
        if seen.unseen.len() > before {
            // What cannot be seen is not called missing.
            seen.claims.clear();
            return Ok(());
        }
        for volume in data_volumes {
            let path =
                format!("/apis/cdi.kubevirt.io/v1beta1/namespaces/{}/datavolumes/{}", seen.namespace, volume.name);
            let object = self.look(&path, "data volumes", seen).await?;
            seen.data_volumes.push(Named { object, ..volume });
        }
        Ok(())
    }

    /// The events about each of the objects.
    async fn events(&self, seen: &mut Snapshot) -> anyhow::Result<()> {
        let mut names = vec![seen.name.clone()];
        names.extend(seen.pods.iter().chain(&seen.migrations).map(|object| name(object).to_owned()));
        names.extend(seen.claims.iter().chain(&seen.data_volumes).map(|source| source.name.clone()));
        names.sort();
        names.dedup();
        for about in names {
            let path =
                format!("/api/v1/namespaces/{}/events?fieldSelector=involvedObject.name%3D{about}", seen.namespace);
            let Some(list) = self.look(&path, "events", seen).await? else { break };
            seen.events.extend(list["items"].as_array().into_iter().flatten().cloned());
        }
        Ok(())
    }
}
