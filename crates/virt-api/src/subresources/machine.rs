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

/// How often a change is decided. Every try is lost to somebody's write; more than a few in a row are a fight, and the client hears of it.
const TRIES: usize = 5;

/// Why a change was not made.
enum Failed {
    /// Somebody else changed the object in between.
    Overtaken(ApiError),
    /// Another try would end the same.
    Refused(ApiError),
}

impl From<ApiError> for Failed {
    fn from(error: ApiError) -> Self {
        Self::Refused(error)
    }
}

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
                self.decided(dry_run, |vm, vmi| power::decide_start(vm, vmi, &options)).await
            }
            Power::Stop => {
                let options: StopOptions = options::parse(body, &["gracePeriod", DRY_RUN])?;
                let dry_run = options::is_dry_run(&options.dry_run)?;
                self.decided(dry_run, |vm, vmi| power::decide_stop(vm, vmi, &options)).await
            }
            Power::Restart => {
                let options: RestartOptions = options::parse(body, &["gracePeriodSeconds", DRY_RUN])?;
                let dry_run = options::is_dry_run(&options.dry_run)?;
                self.decided(dry_run, |vm, vmi| power::decide_restart(vm, vmi, &options)).await
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

    /// Sends what was decided. Whoever was overtaken in between looks again and decides anew: a machine that was just made gets its
    /// first status at about the time of its first request, and that is no reason to refuse it.
    async fn decided<D>(&self, dry_run: bool, decide: D) -> ApiResult<Answer>
    where
        D: Fn(&VirtualMachine, Option<&VirtualMachineInstance>) -> Result<Vec<Change>, Refusal> + Send + Sync,
    {
        for _ in 1..TRIES {
            match self.decide_and_change(dry_run, &decide).await {
                Err(Failed::Overtaken(_)) => {}
                Err(Failed::Refused(error)) => return Err(error),
                Ok(()) => return Ok(accepted()),
            }
        }
        match self.decide_and_change(dry_run, &decide).await {
            Err(Failed::Overtaken(error) | Failed::Refused(error)) => Err(error),
            Ok(()) => Ok(accepted()),
        }
    }

    async fn decide_and_change<D>(&self, dry_run: bool, decide: &D) -> Result<(), Failed>
    where
        D: Fn(&VirtualMachine, Option<&VirtualMachineInstance>) -> Result<Vec<Change>, Refusal> + Send + Sync,
    {
        let (vm, vmi) = (self.find().await?, self.guest().await?);
        let changes = decide(&vm, vmi.as_ref()).map_err(|refusal| self.refused(&refusal))?;
        self.change(&changes, dry_run).await
    }

    /// Sends the patches in order. When one fails, those before it are taken back.
    async fn change(&self, changes: &[Change], dry_run: bool) -> Result<(), Failed> {
        for (index, change) in changes.iter().enumerate() {
            let Err(error) = self.patch(change.target, &change.operations, dry_run).await else { continue };
            for done in changes[..index].iter().filter(|done| !dry_run && !done.undo.is_empty()) {
                if let Err(Failed::Overtaken(error) | Failed::Refused(error)) =
                    self.patch(done.target, &done.undo, false).await
                {
                    tracing::warn!(%error, namespace = self.namespace, name = self.name, "a change could not be taken back");
                }
            }
            return Err(error);
        }
        Ok(())
    }

    async fn patch(&self, target: Target, operations: &[serde_json::Value], dry_run: bool) -> Result<(), Failed> {
        let (kind, subresource, subject) = match target {
            Target::Machine => (Kind::Machine, "", MACHINE),
            Target::MachineStatus => (Kind::Machine, "status", MACHINE),
            Target::Guest => (Kind::Guest, "", GUEST),
        };
        let patched = self.cluster.patch(self.object(kind), subresource, operations, dry_run).await;
        patched.map(drop).map_err(|error| match lost_race(&error) {
            true => Failed::Overtaken(ApiError::modified(subject, self.name)),
            false => Failed::Refused(error),
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ferrovirt_api::kubevirt::Configuration;
    use ferrovirt_apiserver::auth::{Attributes, Decision, UserInfo};
    use futures::future::BoxFuture;
    use http::Method;
    use serde_json::{Value, json};

    use super::*;

    /// A cluster with one machine, whose controller is faster than every one of the first patches.
    struct Busy {
        overtakes: usize,
        patches: AtomicUsize,
    }

    impl Busy {
        fn new(overtakes: usize) -> Self {
            Self { overtakes, patches: AtomicUsize::new(0) }
        }

        async fn start(&self) -> Result<usize, u16> {
            let machine = Machine { cluster: self, namespace: "a", name: "m" };
            let answer = machine.power(Power::Start, b"").await;
            answer.map(|_| self.patches.load(Ordering::SeqCst)).map_err(|error| error.code().as_u16())
        }
    }

    impl Cluster for Busy {
        fn get<'a>(&'a self, object: Object<'a>) -> BoxFuture<'a, ApiResult<Option<Value>>> {
            let mut vm = json!({
                "metadata": {"name": "m", "namespace": "a"},
                "spec": {"runStrategy": "Manual", "template": {"spec": {"domain": {"devices": {}}}}},
            });
            if self.patches.load(Ordering::SeqCst) > 0 {
                vm["status"] = json!({"printableStatus": "Stopped"});
            }
            let found = (object.kind == Kind::Machine).then_some(vm);
            Box::pin(async move { Ok(found) })
        }

        fn list<'a>(&'a self, _: Kind, _: &'a str, _: &'a str) -> BoxFuture<'a, ApiResult<Vec<Value>>> {
            Box::pin(async { Ok(Vec::new()) })
        }

        fn write<'a>(
            &'a self,
            _: Method,
            _: &'a str,
            _: &'a str,
            operations: &'a Value,
        ) -> BoxFuture<'a, ApiResult<Value>> {
            let before = self.patches.fetch_add(1, Ordering::SeqCst);
            let tested = operations[0]["path"].as_str().unwrap_or_default();
            assert_eq!(tested, if before == 0 { "/status" } else { "/status/stateChangeRequests" });
            Box::pin(async move {
                if before < self.overtakes {
                    let why = "the server rejected our request due to an error in our request";
                    return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", why));
                }
                Ok(Value::Null)
            })
        }

        fn decide<'a>(&'a self, _: &'a UserInfo, _: &'a Attributes) -> BoxFuture<'a, ApiResult<Decision>> {
            Box::pin(async { Err(ApiError::internal("nobody asks")) })
        }

        fn configuration(&self) -> std::sync::Arc<Configuration> {
            std::sync::Arc::default()
        }

        fn installation(&self) -> &str {
            "kubevirt"
        }
    }

    #[tokio::test]
    async fn a_start_that_was_overtaken_is_decided_anew() {
        assert_eq!(Busy::new(0).start().await, Ok(1));
        assert_eq!(Busy::new(1).start().await, Ok(2), "the machine got its first status in between");
        assert_eq!(Busy::new(TRIES).start().await, Err(409), "and that ends");
    }
}
