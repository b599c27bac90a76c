//! Requests about a virtual machine: read it and its guest, ask [`power`] what to change, and send that.

use ferrovirt_api::names::groups;
use ferrovirt_api::{VirtualMachine, VirtualMachineInstance, decode};
use ferrovirt_apiserver::http::respond::{self, Answer};
use ferrovirt_apiserver::status::{ApiError, ApiResult, Subject};
use http::StatusCode;

use super::options::{self, MigrateOptions, RestartOptions, StartOptions, StopOptions};
use super::power::{self, Change, Refusal, Target};
use super::wanted::Power;
use super::{GUEST, find_guest};
use crate::cluster::{Cluster, Kind, Object, lost_race};

/// How errors about a virtual machine name it.
pub(super) const MACHINE: Subject<'static> = Subject { group: groups::KUBEVIRT, resource: "virtualmachine" };

/// One virtual machine of the cluster.
pub(super) struct Machine<'a> {
    pub(super) cluster: &'a dyn Cluster,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

impl Machine<'_> {
    fn object(&self, kind: Kind) -> Object<'_> {
        Object { kind, namespace: self.namespace, name: self.name }
    }

    /// The machine, if it is there.
    pub(super) async fn read(&self) -> ApiResult<Option<VirtualMachine>> {
        let value = self.cluster.get(self.object(Kind::Machine)).await?;
        value.map(|value| decode(&value).map_err(ApiError::internal)).transpose()
    }

    async fn find(&self) -> ApiResult<VirtualMachine> {
        self.read().await?.ok_or_else(|| ApiError::not_found(MACHINE, self.name))
    }

    async fn guest(&self) -> ApiResult<Option<VirtualMachineInstance>> {
        let value = self.cluster.get(self.object(Kind::Guest)).await?;
        value.map(|value| decode(&value).map_err(ApiError::internal)).transpose()
    }

    /// The guest that the machine's controller made, for requests that pass through to it.
    pub(super) async fn own_guest(&self) -> ApiResult<VirtualMachineInstance> {
        let vm = self.find().await?;
        if !vm.status.as_ref().is_some_and(|status| status.created) {
            return Err(ApiError::conflict(MACHINE, self.name, "VMI is not started"));
        }
        let vmi = find_guest(self.cluster, self.namespace, self.name).await?;
        let owners = vmi.metadata.owner_references.iter().flatten();
        if owners.map(|owner| Some(&owner.uid)).any(|uid| uid == vm.metadata.uid.as_ref()) {
            return Ok(vmi);
        }
        let why = format!("the guest \"{}\" belongs to no virtual machine of that name", self.name);
        Err(ApiError::internal(why))
    }

    /// Changes the machine's state. Bodies are checked first, so that nonsense is 400 whatever the state is.
    pub(super) async fn power(&self, power: Power, body: &[u8]) -> ApiResult<Answer> {
        const DRY_RUN: &str = "dryRun";
        let refused = |refusal: Refusal| self.refused(&refusal);
        match power {
            Power::Start => {
                let options: StartOptions = options::parse(body, &["paused", DRY_RUN])?;
                let dry_run = options::is_dry_run(&options.dry_run)?;
                let (vm, vmi) = (self.find().await?, self.guest().await?);
                self.change(power::decide_start(&vm, vmi.as_ref(), &options).map_err(refused)?, dry_run).await
            }
            Power::Stop => {
                let options: StopOptions = options::parse(body, &["gracePeriod", DRY_RUN])?;
                let dry_run = options::is_dry_run(&options.dry_run)?;
                let (vm, vmi) = (self.find().await?, self.guest().await?);
                self.change(power::decide_stop(&vm, vmi.as_ref(), &options).map_err(refused)?, dry_run).await
            }
            Power::Restart => {
                let options: RestartOptions = options::parse(body, &["gracePeriodSeconds", DRY_RUN])?;
                let dry_run = options::is_dry_run(&options.dry_run)?;
                let (vm, vmi) = (self.find().await?, self.guest().await?);
                self.change(power::decide_restart(&vm, vmi.as_ref(), &options).map_err(refused)?, dry_run).await
            }
            Power::Migrate => {
                let options: MigrateOptions = options::parse(body, &["addedNodeSelector", DRY_RUN])?;
                let dry_run = options::is_dry_run(&options.dry_run)?;
                let (vm, vmi) = (self.find().await?, self.guest().await?);
                let migration = power::decide_migrate(&vm, vmi.as_ref(), &options).map_err(refused)?;
                self.cluster.create(Kind::Migration, self.namespace, &migration, dry_run).await?;
                Ok(accepted())
            }
        }
    }

    /// Sends the patches in order. When one fails, those before it are taken back.
    async fn change(&self, changes: Vec<Change>, dry_run: bool) -> ApiResult<Answer> {
        for (index, change) in changes.iter().enumerate() {
            let Err(error) = self.patch(change.target, &change.operations, dry_run).await else { continue };
            for done in changes[..index].iter().filter(|done| !dry_run && !done.undo.is_empty()) {
                if let Err(error) = self.patch(done.target, &done.undo, false).await {
                    tracing::warn!(%error, namespace = self.namespace, name = self.name, "a change could not be taken back");
                }
            }
            return Err(error);
        }
        Ok(accepted())
    }

    async fn patch(&self, target: Target, operations: &[serde_json::Value], dry_run: bool) -> ApiResult<()> {
        let (kind, subresource, subject) = match target {
            Target::Machine => (Kind::Machine, "", MACHINE),
            Target::MachineStatus => (Kind::Machine, "status", MACHINE),
            Target::Guest => (Kind::Guest, "", GUEST),
        };
        let patched = self.cluster.patch(self.object(kind), subresource, operations, dry_run).await;
        patched.map(drop).map_err(|error| match lost_race(&error) {
            true => ApiError::modified(subject, self.name),
            false => error,
        })
    }

    fn refused(&self, refusal: &Refusal) -> ApiError {
        match refusal.code() {
            StatusCode::BAD_REQUEST => ApiError::bad_request(refusal.to_string()),
            StatusCode::NOT_FOUND => ApiError::not_found(GUEST, self.name),
            _ => ApiError::conflict(MACHINE, self.name, &refusal.to_string()),
        }
    }
}

/// The wish is recorded; what follows from it is the controllers' work.
fn accepted() -> Answer {
    respond::bytes(StatusCode::ACCEPTED, "application/json", "")
}
