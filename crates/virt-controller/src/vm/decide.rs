//! The judgement about one machine: from a view to a plan. No IO, no clock. The table of strategies is in [`strategy`].

use std::sync::Arc;
use std::time::Duration;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::names::{finalizers, reasons};
use ferrovirt_api::vm::{PrintableStatus, RunStrategy, VirtualMachineStatus};
use ferrovirt_api::vmi::VirtualMachineInstancePhase as Phase;
use ferrovirt_reconcile::controller::Failure;
use ferrovirt_reconcile::{Note, Plan};
use serde_json::{Value, json};

use super::act::{Action, Seen};
use super::data_volumes::{self, Filling};
use super::live::{self, Drift};
use super::observe::{Guest, Machine, View, is_held};
use super::status::{self, Judgement, Trouble};
use super::strategy::{self, Life, Step};
use super::{backoff, instance, requests};
use crate::conditions::whole_seconds;

type Decision = Plan<Action, VirtualMachineStatus>;

/// How long a guest may take to come up before its machine's status says that it is starting. Less costs a write for each start, more
/// leaves people wondering.
pub const PATIENCE: Duration = Duration::from_secs(3);
/// The finalizer of a deletion that leaves dependents behind.
const ORPHAN: &str = "orphan";

/// The plan for what there is under a name.
pub fn decide(view: &View) -> Decision {
    match view {
        View::Widow(vmi) => outlived(vmi),
        View::Machine(machine) if machine.vm.metadata.deletion_timestamp.is_some() => leave(machine),
        View::Machine(machine) => keep(machine),
    }
}

/// A guest whose machine is gone: nobody is left to hold it for.
fn outlived(vmi: &Arc<VirtualMachineInstance>) -> Decision {
    let confirm = Action::ConfirmNoMachine { owner: super::owner_of(vmi) };
    Plan::nothing().then(confirm).then(Action::Release(vmi.clone()))
}

fn keep(machine: &Machine) -> Decision {
    if let Some(changes) = preparation(machine) {
        return Plan::nothing().then(patch_machine(machine, changes));
    }
    match machine.guest() {
        Guest::Orphan(vmi) if vmi.metadata.deletion_timestamp.is_none() => adopt(machine, vmi),
        Guest::Orphan(vmi) | Guest::Foreign(vmi) => stand_back(machine, vmi),
        Guest::Ours(vmi) => carry_out(machine, Some(vmi)),
        Guest::None => carry_out(machine, None),
    }
}

/// What a machine needs before anything else: to be held, and an identity of its own.
fn preparation(machine: &Machine) -> Option<Value> {
    let mut changes = json!({});
    let held = machine.vm.metadata.finalizers.as_deref().unwrap_or_default();
    if !held.iter().any(|finalizer| finalizer == finalizers::VM_CONTROLLER) {
        let held: Vec<&str> = held.iter().map(String::as_str).chain([finalizers::VM_CONTROLLER]).collect();
        changes["metadata"]["finalizers"] = json!(held);
    }
    let firmware = machine.vm.spec.template.spec.domain.firmware.as_ref();
    if firmware.is_none_or(|firmware| firmware.uuid.is_none()) {
        let uuid = instance::firmware_uuid(machine).to_string();
        changes["spec"]["template"]["spec"]["domain"]["firmware"]["uuid"] = json!(uuid);
    }
    (changes != json!({})).then_some(changes)
}

/// A guest of this name that is nobody's becomes this machine's.
fn adopt(machine: &Machine, vmi: &Arc<VirtualMachineInstance>) -> Decision {
    let mut held = vmi.metadata.finalizers.clone().unwrap_or_default();
    if !is_held(vmi) {
        held.push(finalizers::VM_CONTROLLER.to_owned());
    }
    let mut owners = vmi.metadata.owner_references.clone().unwrap_or_default();
    owners.push(instance::owner(&machine.vm));
    let metadata = json!({"finalizers": held, "ownerReferences": owners});
    // A machine that was deleted and left its guest behind must not take it back: the guest would end with it.
    let take = Action::PatchGuest { vmi: vmi.clone(), changes: json!({ "metadata": metadata }) };
    Plan::nothing().then(confirm_machine(machine)).then(take)
}

/// A guest of this name is somebody else's, or on its way out: this machine's own comes after it.
fn stand_back(machine: &Machine, vmi: &Arc<VirtualMachineInstance>) -> Decision {
    if is_held(vmi) && may_be_released(vmi) {
        return Plan::nothing().then(Action::Release(vmi.clone()));
    }
    let mut judgement = judge(machine, None);
    let is_leaving = vmi.metadata.deletion_timestamp.is_some();
    if judgement.is_set_to_start && !is_leaving {
        let message = format!(
            "a VirtualMachineInstance named {} exists and is not this machine's: delete it or rename one of the two",
            machine.name()
        );
        judgement.trouble = Some(Trouble { reason: reasons::FAILED_CREATE, message });
    }
    // Requests wait until this machine has a say.
    judgement.requests.clone_from(&machine.status.state_change_requests);
    tell_trouble(machine, &judgement).report(status::status(machine, &judgement))
}

/// What can be said of a machine before it is decided what to do.
fn judge<'a>(machine: &Machine, vmi: Option<&'a VirtualMachineInstance>) -> Judgement<'a> {
    let strategy = machine.vm.spec.effective_run_strategy();
    let acting = strategy.unwrap_or(RunStrategy::Halted);
    let before = &machine.status;
    let requests = requests::unserved(&before.state_change_requests, acting, vmi).to_vec();
    let (life, wish) = (Life::of(vmi), requests::wish(&requests));
    let start_failure = backoff::update(before.start_failure.as_ref(), acting, vmi, machine.uid(), machine.now);
    Judgement {
        vmi,
        strategy,
        is_set_to_start: strategy::wants_a_guest(acting, life, wish, is_new_here(machine, acting)),
        requests,
        start_failure,
        filling: data_volumes::filling(machine),
        drift: vmi.map_or(Drift::None, |vmi| live::drift(machine, vmi)),
        trouble: None,
    }
}

fn is_new_here(machine: &Machine, strategy: RunStrategy) -> bool {
    machine.status.run_strategy != Some(strategy)
}

fn carry_out(machine: &Machine, vmi: Option<&Arc<VirtualMachineInstance>>) -> Decision {
    let mut judgement = judge(machine, vmi.map(|vmi| &**vmi));
    let step = match next_step(machine, &judgement) {
        Ok(step) => step,
        Err(trouble) => {
            judgement.trouble = Some(trouble);
            Step::LetBe
        }
    };
    let mut plan = match (step, vmi) {
        (Step::Start { after_back_off }, None) => start(machine, &mut judgement, after_back_off),
        (Step::Remove, Some(vmi)) => remove(machine, &judgement, vmi),
        (Step::AwaitTheEnd, Some(vmi)) => await_the_end(machine, &judgement, vmi),
        (Step::AskForStart, Some(vmi)) => {
            judgement.requests.push(requests::start_after(vmi));
            report(machine, &judgement)
        }
        (Step::TurnAlways, _) => Plan::nothing().then(patch_machine(machine, turned_always(machine))),
        (_, vmi) => let_be(machine, &judgement, vmi),
    };
    if data_volumes::are_made_at_once(machine) || matches!(step, Step::Start { .. }) {
        let missing =
            data_volumes::missing(machine).into_iter().map(|volume| Action::CreateDataVolume(Box::new(volume)));
        plan.actions.splice(0..0, missing);
    }
    if let Filling::Awaited { look_again: Some(delay), .. } = judgement.filling {
        plan = plan.look_again_after(delay);
    }
    plan
}

/// What the table says, or why it cannot be asked.
fn next_step(machine: &Machine, judgement: &Judgement<'_>) -> Result<Step, Trouble> {
    let refuse = |reason, message: &str| Err(Trouble { reason, message: message.to_owned() });
    let Some(strategy) = judgement.strategy else {
        let message = "spec.runStrategy is missing: set it to Always, RerunOnFailure, Manual, Halted or Once";
        return refuse(reasons::FAILED_CREATE, message);
    };
    let (life, wish) = (Life::of(judgement.vmi), requests::wish(&judgement.requests));
    let Some(step) = strategy::step(strategy, life, wish, is_new_here(machine, strategy)) else {
        let message =
            "spec.runStrategy: WaitAsReceiver is not supported yet; set it to Halted and start the machine by hand";
        return refuse(reasons::FAILED_CREATE, message);
    };
    if matches!(step, Step::Start { .. }) {
        if machine.vm.spec.instancetype.is_some() {
            let message = "spec.instancetype is not supported yet: give CPU and memory in spec.template.spec.domain";
            return refuse(reasons::FAILED_FIND_INSTANCETYPE, message);
        }
        if machine.vm.spec.preference.is_some() {
            let message = "spec.preference is not supported yet: give devices in spec.template.spec.domain";
            return refuse(reasons::FAILED_FIND_PREFERENCE, message);
        }
    }
    Ok(step)
}

/// Makes a guest, once nothing is in the way.
fn start(machine: &Machine, judgement: &mut Judgement<'_>, after_back_off: bool) -> Decision {
    match &judgement.filling {
        Filling::Impossible { message } => {
            let trouble = Trouble { reason: reasons::FAILED_CREATE, message: message.clone() };
            judgement.trouble = Some(trouble);
            return report(machine, judgement);
        }
        Filling::Awaited { .. } | Filling::Failed { .. } => return report(machine, judgement),
        Filling::Ready => {}
    }
    let rest = backoff::rest(judgement.start_failure.as_ref(), machine.now).filter(|_| after_back_off);
    if let Some(rest) = rest {
        return report(machine, judgement).look_again_after(rest);
    }
    create(machine, judgement)
}

fn create(machine: &Machine, judgement: &mut Judgement<'_>) -> Decision {
    let revision = match instance::revision(machine) {
        Ok(revision) => revision,
        Err(failure) => {
            judgement.trouble = Some(Trouble { reason: reasons::FAILED_CREATE, message: failure.message() });
            return report(machine, judgement);
        }
    };
    // A stop that is served is crossed off first: a guest that comes up while the list still names the one before could not be
    // stopped by whoever reads that list.
    if judgement.requests != machine.status.state_change_requests {
        return report(machine, judgement);
    }
    let mut plan = Plan::nothing();
    // Of a machine that had a guest before, yesterday's wishes may be in the cache: what was stopped must not come up again.
    if machine.status.run_strategy.is_some() || !judgement.requests.is_empty() {
        plan = plan.then(confirm_machine(machine));
    }
    let is_there = machine.revisions.iter().any(|known| known.metadata.name == revision.metadata.name);
    if !is_there {
        plan = plan.then(Action::CreateRevision(Box::new(revision)));
    }
    plan = plan.then(Action::CreateGuest(Box::new(instance::guest(machine, &judgement.requests))));
    // That there is a guest, the next look will tell.
    instance::outdated_revisions(machine).fold(plan, |plan, old| plan.then(Action::DeleteRevision(old.clone())))
}

/// Deletes the guest's object, after everything that is to be remembered of it is written down.
fn remove(machine: &Machine, judgement: &Judgement<'_>, vmi: &Arc<VirtualMachineInstance>) -> Decision {
    if !is_written_down(machine, judgement) {
        return report(machine, judgement);
    }
    let is_live = Life::of(Some(vmi)) == Life::Live;
    let plan = Plan::nothing();
    // A living guest is not ended on the word of a cache.
    let plan = if is_live { plan.then(confirm_machine(machine)) } else { plan };
    let plan = plan.then(Action::DeleteGuest(vmi.clone()));
    if is_live { plan.then(Action::Tell(stopped(vmi))) } else { plan }
}

fn stopped(vmi: &VirtualMachineInstance) -> Note {
    let uid = vmi.metadata.uid.as_deref().unwrap_or_default();
    Note::normal("SuccessfulDelete", format!("Stopped the guest: deleted virtual machine instance {uid}"))
}

fn is_written_down(machine: &Machine, judgement: &Judgement<'_>) -> bool {
    status::has_same_ledger(&machine.status, &status::status(machine, judgement))
}

/// A deleted guest is let go when it has ended and what is to be remembered of it is written down.
fn await_the_end(machine: &Machine, judgement: &Judgement<'_>, vmi: &Arc<VirtualMachineInstance>) -> Decision {
    if !may_be_released(vmi) || !is_written_down(machine, judgement) {
        return report(machine, judgement);
    }
    if is_held(vmi) { Plan::nothing().then(Action::Release(vmi.clone())) } else { Plan::nothing() }
}

/// Whether a guest has ended and somebody has deleted it.
fn may_be_released(vmi: &VirtualMachineInstance) -> bool {
    let is_final = vmi.status.as_ref().and_then(|status| status.phase).is_some_and(Phase::is_final);
    let others =
        vmi.metadata.finalizers.iter().flatten().any(|held| held == finalizers::VMI || held == finalizers::VMI_OLD);
    vmi.metadata.deletion_timestamp.is_some() && (is_final || !others)
}

fn let_be(machine: &Machine, judgement: &Judgement<'_>, vmi: Option<&Arc<VirtualMachineInstance>>) -> Decision {
    match (&judgement.drift, vmi) {
        (Drift::Followed(changes), Some(vmi)) => {
            Plan::nothing().then(Action::PatchGuest { vmi: vmi.clone(), changes: changes.clone() })
        }
        _ => report(machine, judgement),
    }
}

/// Says how things are, in one write. On a smooth way up that waits for a moment: the next news may be that the guest runs.
fn report(machine: &Machine, judgement: &Judgement<'_>) -> Decision {
    let status = status::status(machine, judgement);
    let patience = judgement.vmi.and_then(|vmi| rest_of_patience(machine, vmi));
    if let Some(rest) = patience.filter(|_| status::is_only_progress(&machine.status, &status)) {
        return Plan::nothing().look_again_after(rest);
    }
    let mut plan = tell_trouble(machine, judgement);
    if status.state_change_requests != machine.status.state_change_requests {
        plan.actions.insert(0, confirm_guest(machine));
    }
    let is_start_slow = status.printable_status == Some(PrintableStatus::Starting)
        && machine.status.printable_status != Some(PrintableStatus::Starting);
    if is_start_slow {
        let note = format!("Started the guest: created virtual machine instance {}", machine.name());
        plan = plan.then(Action::Tell(Note::normal("SuccessfulCreate", note)));
    }
    plan.report(status)
}

fn rest_of_patience(machine: &Machine, vmi: &VirtualMachineInstance) -> Option<Duration> {
    let created = vmi.metadata.creation_timestamp.as_ref()?.0;
    let age = Duration::try_from(machine.now.duration_since(created)).unwrap_or_default();
    PATIENCE.checked_sub(age).filter(|rest| !rest.is_zero())
}

/// An event for what is in the way, once.
fn tell_trouble(machine: &Machine, judgement: &Judgement<'_>) -> Decision {
    let Some(Trouble { reason, message }) = &judgement.trouble else { return Plan::nothing() };
    let known =
        ferrovirt_api::meta::find_condition(&machine.status.conditions, ferrovirt_api::names::conditions::FAILURE);
    if known.is_some_and(|known| known.message.as_ref() == Some(message)) {
        return Plan::nothing();
    }
    Plan::nothing().then(Action::Tell(Note::warning(*reason, message)))
}

fn turned_always(machine: &Machine) -> Value {
    if machine.vm.spec.run_strategy.is_some() {
        json!({"spec": {"runStrategy": RunStrategy::Always}})
    } else {
        json!({"spec": {"running": true}})
    }
}

fn patch_machine(machine: &Machine, changes: Value) -> Action {
    Action::PatchMachine { vm: machine.vm.clone(), changes }
}

fn confirm_guest(machine: &Machine) -> Action {
    Action::ConfirmGuest(machine.namesake.as_ref().map(|vmi| Seen::of(&**vmi)))
}

fn confirm_machine(machine: &Machine) -> Action {
    Action::ConfirmMachine(Seen::of(&*machine.vm))
}

/// A deleted machine: its guest first (or not at all), then its finalizer.
fn leave(machine: &Machine) -> Decision {
    let held = machine.vm.metadata.finalizers.as_deref().unwrap_or_default();
    if !held.iter().any(|finalizer| finalizer == finalizers::VM_CONTROLLER) {
        return Plan::nothing();
    }
    let leaves_guest = held.iter().any(|finalizer| finalizer == ORPHAN);
    let rest: Vec<&String> = held.iter().filter(|finalizer| *finalizer != finalizers::VM_CONTROLLER).collect();
    let let_go = patch_machine(machine, json!({"metadata": {"finalizers": rest}}));
    match machine.guest() {
        Guest::None => Plan::nothing().then(confirm_guest(machine)).then(let_go),
        Guest::Ours(vmi) | Guest::Orphan(vmi) if leaves_guest || super::owner_of(vmi).is_none() => {
            let plan = if is_held(vmi) { Plan::nothing().then(Action::Release(vmi.clone())) } else { Plan::nothing() };
            plan.then(let_go)
        }
        Guest::Ours(vmi) | Guest::Orphan(vmi) => end_guest(machine, vmi),
        Guest::Foreign(_) => Plan::nothing().then(let_go),
    }
}

fn end_guest(machine: &Machine, vmi: &Arc<VirtualMachineInstance>) -> Decision {
    let judgement = Judgement { requests: machine.status.state_change_requests.clone(), ..judge(machine, Some(vmi)) };
    match Life::of(Some(vmi)) {
        Life::Leaving if may_be_released(vmi) && is_held(vmi) => Plan::nothing().then(Action::Release(vmi.clone())),
        Life::Leaving if may_be_released(vmi) => Plan::nothing(),
        Life::Leaving | Life::Absent => Plan::nothing().report(status::status(machine, &judgement)),
        Life::Live => Plan::nothing().then(Action::DeleteGuest(vmi.clone())).then(Action::Tell(stopped(vmi))),
        Life::Succeeded | Life::Failed => Plan::nothing().then(Action::DeleteGuest(vmi.clone())),
    }
}

/// What the status says when an action failed.
pub(super) fn after_failure(machine: &Machine, failure: &Failure) -> Option<VirtualMachineStatus> {
    if failure.category().is_quiet() {
        return None;
    }
    let vmi = machine.own_guest().map(|vmi| &**vmi);
    let mut judgement = judge(machine, vmi);
    let is_leaving = machine.vm.metadata.deletion_timestamp.is_some();
    let reason = match next_step(machine, &judgement) {
        _ if is_leaving => reasons::FAILED_DELETE,
        Ok(Step::Start { .. }) => reasons::FAILED_CREATE,
        Ok(Step::Remove | Step::AwaitTheEnd) => reasons::FAILED_DELETE,
        Ok(_) | Err(_) => reasons::FAILED_UPDATE_ERROR,
    };
    // Nothing was done: what was asked for is still to be done.
    judgement.requests.clone_from(&machine.status.state_change_requests);
    let mut status = status::status(machine, &judgement);
    let trouble = Trouble { reason, message: failure.message() };
    status::fail(&mut status.conditions, &whole_seconds(machine.now), Some(&trouble));
    Some(status)
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
