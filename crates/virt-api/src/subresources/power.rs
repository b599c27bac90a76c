//! Start, stop, restart and migrate: what each becomes in each state of a virtual machine. Pure functions.
//!
//! virt-api starts and stops nothing itself. It changes the machine's run strategy, or leaves a request in its status that the
//! VM controller carries out:
//!
//! | run strategy     | start                                                  | stop                      | restart             |
//! |------------------|--------------------------------------------------------|---------------------------|---------------------|
//! | `Always`         | 409                                                    | strategy `Halted`         | requests stop, start |
//! | `RerunOnFailure` | request; stop and start when it succeeded, 409 when it failed | request for this guest | requests stop, start |
//! | `Manual`         | request; stop and start when it ended                  | request for this guest    | requests stop, start |
//! | `Halted`         | strategy `Always`; request when paused                 | 409, unless it is sooner  | 409                 |
//! | `Once`           | 409                                                    | strategy `Halted`         | 409                 |
//! | `WaitAsReceiver` | 409                                                    | 409                       | 409                 |
//!
//! Every patch tests what was read before it changes it: whoever is overtaken decides anew, and nothing is lost.

use ferrovirt_api::meta::{Condition, find_condition};
use ferrovirt_api::names::conditions;
use ferrovirt_api::vm::{RunStrategy, StateChangeAction, StateChangeRequest};
use ferrovirt_api::vmi::VirtualMachineInstancePhase as Phase;
use ferrovirt_api::{VirtualMachine, VirtualMachineInstance};
use http::StatusCode;
use serde_json::{Value, json};

use super::options::{MigrateOptions, RestartOptions, StartOptions, StopOptions};

/// A guest that is restarted by force still gets this long, so that its disks are closed in order.
const FORCED_GRACE_SECONDS: i64 = 1;

/// What a patch is run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The virtual machine.
    Machine,
    /// Its status.
    MachineStatus,
    /// Its guest.
    Guest,
}

/// One JSON patch, and the one that takes it back when a later change fails.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// What is changed.
    pub target: Target,
    /// The operations.
    pub operations: Vec<Value>,
    /// The operations that undo them; empty when nothing comes after.
    pub undo: Vec<Value>,
}

/// Why a request is refused. The words are those that clients know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is a live guest.
    #[error("VM is already running")]
    AlreadyRunning,
    /// There is none.
    #[error("VM is not running")]
    NotRunning,
    /// There is none, and a restart needs one.
    #[error("VM is not running: {}", RunStrategy::Halted.as_str())]
    NothingToRestart,
    /// There is no guest to move.
    #[error("virtualmachineinstance.kubevirt.io \"{0}\" not found")]
    NoGuest(String),
    /// Volumes point to copies that are not complete.
    #[error(
        "VM recovery required: Volume migration failed, leaving some volumes pointing to non-consistent targets; manual intervention is needed to reassign them to their original volumes."
    )]
    RecoveryRequired,
    /// The strategy starts by itself, or never again.
    #[error("{} does not support manual start requests", .0.as_str())]
    NoManualStart(RunStrategy),
    /// The strategy is none that can be stopped.
    #[error("{} does not support manual stop requests", .0.as_str())]
    NoManualStop(RunStrategy),
    /// There is nothing to restart by the strategy. (The misspelling is what clients know.)
    #[error("RunStategy {} does not support manual restart requests", .0.as_str())]
    NoManualRestart(RunStrategy),
    /// The controller starts it again by itself.
    #[error("{} does not support starting VM from failed state", RunStrategy::RerunOnFailure.as_str())]
    Failed,
    /// The guest is being stopped already.
    #[error("{} only supports manual stop requests with a shorter graceperiod", RunStrategy::Halted.as_str())]
    NotShorter,
    /// An earlier request still waits for the controller.
    #[error("unable to complete request: stop/start already underway")]
    Underway,
    /// A restart is by force or not.
    #[error("For force restart, only gracePeriod=0 is supported for now")]
    PoliteForce,
    /// Time does not run backwards.
    #[error("gracePeriod has to be greater or equal to 0")]
    NegativeGracePeriod,
}

impl Refusal {
    /// The HTTP status.
    #[must_use]
    pub const fn code(&self) -> StatusCode {
        match self {
            Self::PoliteForce | Self::NegativeGracePeriod => StatusCode::BAD_REQUEST,
            Self::NoGuest(_) => StatusCode::NOT_FOUND,
            _ => StatusCode::CONFLICT,
        }
    }
}

/// What a start changes.
pub fn decide_start(
    vm: &VirtualMachine,
    vmi: Option<&VirtualMachineInstance>,
    options: &StartOptions,
) -> Result<Vec<Change>, Refusal> {
    let phase = vmi.and_then(phase);
    if phase.is_some_and(|phase| !phase.is_final() && phase != Phase::Unknown) {
        return Err(Refusal::AlreadyRunning);
    }
    if holds(vm, conditions::MANUAL_RECOVERY_REQUIRED) {
        return Err(Refusal::RecoveryRequired);
    }
    let start = start_request(options.paused);
    let again = |vmi: &VirtualMachineInstance| vec![stop_request(vmi), start.clone()];
    let ended = vmi.filter(|_| phase.is_some_and(Phase::is_final));
    let change = match strategy(vm) {
        RunStrategy::Halted if options.paused => requests(vm, &[start])?,
        RunStrategy::Halted => run_strategy(vm, RunStrategy::Always),
        RunStrategy::RerunOnFailure if phase == Some(Phase::Failed) => return Err(Refusal::Failed),
        RunStrategy::RerunOnFailure | RunStrategy::Manual => match ended {
            Some(vmi) => requests(vm, &again(vmi))?,
            None => requests(vm, &[start])?,
        },
        other @ (RunStrategy::Always | RunStrategy::Once | RunStrategy::WaitAsReceiver) => {
            return Err(Refusal::NoManualStart(other));
        }
    };
    Ok(vec![change])
}

/// What a stop changes.
pub fn decide_stop(
    vm: &VirtualMachine,
    vmi: Option<&VirtualMachineInstance>,
    options: &StopOptions,
) -> Result<Vec<Change>, Refusal> {
    if options.grace_period.is_some_and(|seconds| seconds < 0) {
        return Err(Refusal::NegativeGracePeriod);
    }
    let live = vmi.filter(|vmi| !phase(vmi).is_some_and(Phase::is_final));
    let sooner = live.zip(options.grace_period).map(|(vmi, seconds)| grace_period(vmi, seconds));
    let stop = |vmi: &VirtualMachineInstance| requests(vm, &[stop_request(vmi)]);
    let change = match strategy(vm) {
        RunStrategy::Halted => {
            let vmi = live.ok_or(Refusal::NotRunning)?;
            let asked = options.grace_period.ok_or(Refusal::NotShorter)?;
            if vmi.spec.termination_grace_period_seconds.is_some_and(|now| asked >= now) {
                return Err(Refusal::NotShorter);
            }
            stop(vmi)?
        }
        RunStrategy::RerunOnFailure | RunStrategy::Manual => stop(live.ok_or(Refusal::NotRunning)?)?,
        RunStrategy::Always | RunStrategy::Once => run_strategy(vm, RunStrategy::Halted),
        other @ RunStrategy::WaitAsReceiver => return Err(Refusal::NoManualStop(other)),
    };
    Ok(sooner.into_iter().chain([change]).collect())
}

/// What a restart changes.
pub fn decide_restart(
    vm: &VirtualMachine,
    vmi: Option<&VirtualMachineInstance>,
    options: &RestartOptions,
) -> Result<Vec<Change>, Refusal> {
    match options.grace_period_seconds {
        Some(seconds) if seconds > 0 => return Err(Refusal::PoliteForce),
        Some(seconds) if seconds < 0 => return Err(Refusal::NegativeGracePeriod),
        _ => {}
    }
    if holds(vm, conditions::VOLUMES_CHANGE) {
        return Err(Refusal::RecoveryRequired);
    }
    match strategy(vm) {
        RunStrategy::Always | RunStrategy::RerunOnFailure | RunStrategy::Manual => {}
        other @ (RunStrategy::Halted | RunStrategy::Once | RunStrategy::WaitAsReceiver) => {
            return Err(Refusal::NoManualRestart(other));
        }
    }
    let vmi = vmi.ok_or(Refusal::NothingToRestart)?;
    let by_force = options.grace_period_seconds.map(|_| grace_period(vmi, FORCED_GRACE_SECONDS));
    let again = requests(vm, &[stop_request(vmi), start_request(false)])?;
    Ok(by_force.into_iter().chain([again]).collect())
}

/// The object that a migration becomes.
pub fn decide_migrate(
    vm: &VirtualMachine,
    vmi: Option<&VirtualMachineInstance>,
    options: &MigrateOptions,
) -> Result<Value, Refusal> {
    let name = vm.metadata.name.clone().unwrap_or_default();
    let vmi = vmi.ok_or_else(|| Refusal::NoGuest(name.clone()))?;
    if phase(vmi) != Some(Phase::Running) {
        return Err(Refusal::NotRunning);
    }
    let mut migration = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"generateName": "kubevirt-migrate-vm-", "namespace": vm.metadata.namespace},
        "spec": {"vmiName": name},
    });
    if let Some(selector) = options.added_node_selector.as_ref().filter(|selector| !selector.is_empty()) {
        migration["spec"]["addedNodeSelector"] = json!(selector);
    }
    Ok(migration)
}

/// A machine that says nothing does not run.
fn strategy(vm: &VirtualMachine) -> RunStrategy {
    vm.spec.effective_run_strategy().unwrap_or(RunStrategy::Halted)
}

fn phase(vmi: &VirtualMachineInstance) -> Option<Phase> {
    vmi.status.as_ref()?.phase
}

fn holds(vm: &VirtualMachine, condition: &str) -> bool {
    let status = vm.status.as_ref();
    status.and_then(|status| find_condition(&status.conditions, condition)).is_some_and(Condition::is_true)
}

fn start_request(paused: bool) -> StateChangeRequest {
    let data = paused.then(|| ("paused".to_owned(), "true".to_owned()));
    StateChangeRequest { action: StateChangeAction::Start, data: data.into_iter().collect(), uid: None }
}

/// A stop names its guest, so that it can never hit the next one.
fn stop_request(vmi: &VirtualMachineInstance) -> StateChangeRequest {
    StateChangeRequest { action: StateChangeAction::Stop, data: Default::default(), uid: vmi.metadata.uid.clone() }
}

fn test(path: &str, value: impl Into<Value>) -> Value {
    json!({"op": "test", "path": path, "value": value.into()})
}

fn set(path: &str, value: impl Into<Value>) -> Value {
    json!({"op": "add", "path": path, "value": value.into()})
}

/// Leaves requests for the controller. A lone stop replaces whatever waits; anything else has to wait itself.
fn requests(vm: &VirtualMachine, wanted: &[StateChangeRequest]) -> Result<Change, Refusal> {
    const PATH: &str = "/status/stateChangeRequests";
    let wanted_value = json!(wanted);
    let Some(status) = &vm.status else {
        let operations =
            vec![test("/status", Value::Null), set("/status", json!({"stateChangeRequests": wanted_value}))];
        return Ok(Change { target: Target::MachineStatus, operations, undo: Vec::new() });
    };
    let waiting = &status.state_change_requests;
    let only_stops = matches!(wanted, [only] if only.action == StateChangeAction::Stop);
    if !waiting.is_empty() && !only_stops {
        return Err(Refusal::Underway);
    }
    let seen = if waiting.is_empty() { Value::Null } else { json!(waiting) };
    let mut operations = vec![test(PATH, seen), set(PATH, wanted_value)];
    if status.start_failure.is_some() {
        // Somebody asked: the back-off of earlier failures is over.
        operations.push(json!({"op": "remove", "path": "/status/startFailure"}));
    }
    Ok(Change { target: Target::MachineStatus, operations, undo: Vec::new() })
}

/// Changes the strategy in the field that the user chose.
fn run_strategy(vm: &VirtualMachine, wanted: RunStrategy) -> Change {
    let operations = match (vm.spec.run_strategy, vm.spec.running) {
        (None, Some(running)) => {
            vec![test("/spec/running", running), set("/spec/running", wanted == RunStrategy::Always)]
        }
        (now, _) => {
            vec![test("/spec/runStrategy", json!(now)), set("/spec/runStrategy", wanted.as_str())]
        }
    };
    Change { target: Target::Machine, operations, undo: Vec::new() }
}

/// Gives the guest another time to shut down.
fn grace_period(vmi: &VirtualMachineInstance, seconds: i64) -> Change {
    const PATH: &str = "/spec/terminationGracePeriodSeconds";
    let now = vmi.spec.termination_grace_period_seconds;
    let back = match now {
        Some(seconds) => set(PATH, seconds),
        None => json!({"op": "remove", "path": PATH}),
    };
    Change {
        target: Target::Guest,
        operations: vec![test(PATH, json!(now)), set(PATH, seconds)],
        undo: vec![test(PATH, seconds), back],
    }
}
