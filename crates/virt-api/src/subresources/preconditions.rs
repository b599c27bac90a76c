//! What must hold before something is done to a guest. The codes and words are those that clients know.

use ferrovirt_api::meta::{Condition, FeatureState, find_condition};
use ferrovirt_api::names::conditions;
use ferrovirt_api::vmi::VirtualMachineInstancePhase as Phase;
use ferrovirt_api::{VirtualMachine, VirtualMachineInstance};
use ferrovirt_apiserver::status::{ApiError, ApiResult};

use super::GUEST;
use super::machine::MACHINE;
use super::wanted::{Command, GuestStream, Wanted};

const NOT_RUNNING: &str = "VMI is not running";
/// What some commands say instead.
const MACHINE_NOT_RUNNING: &str = "VM is not running";
const PAUSED: &str = "VMI is paused";
const NO_AGENT: &str = "VMI does not have guest agent connected";

/// Refuses what the guest's state does not allow.
pub(super) fn check(wanted: &Wanted, vmi: &VirtualMachineInstance) -> ApiResult<()> {
    let guest = State { vmi };
    match wanted {
        Wanted::Stream(GuestStream::Console) => {
            guest.has(vmi.spec.domain.devices.autoattach_serial_console, "No serial consoles are present.")?;
            if guest.phase() == Some(Phase::Failed) {
                return Err(guest.conflict("VMI is in failed status"));
            }
            guest.connectable()
        }
        Wanted::Stream(GuestStream::Vnc) | Wanted::Screenshot => {
            guest.has(vmi.spec.domain.devices.autoattach_graphics_device, "No graphics devices are present.")?;
            guest.connectable()
        }
        Wanted::PortForward(_) => {
            guest.running()?;
            guest.refuse_if(guest.is(conditions::PAUSED), PAUSED)
        }
        Wanted::Command(command) => guest.command(*command),
        Wanted::CancelEvacuation => Ok(()),
        Wanted::GuestInfo | Wanted::Users | Wanted::Filesystems => guest.agent().map_err(ApiError::internal),
    }
}

/// Refuses to let a guest go on while its disks are being copied as they are.
pub(super) fn check_machine(vm: Option<&VirtualMachine>) -> ApiResult<()> {
    let Some(vm) = vm else { return Ok(()) };
    if vm.status.as_ref().is_some_and(|status| status.snapshot_in_progress.is_some()) {
        let name = vm.metadata.name.as_deref().unwrap_or_default();
        return Err(ApiError::conflict(MACHINE, name, "VM snapshot is in progress"));
    }
    Ok(())
}

struct State<'a> {
    vmi: &'a VirtualMachineInstance,
}

impl State<'_> {
    fn phase(&self) -> Option<Phase> {
        self.vmi.status.as_ref()?.phase
    }

    fn is(&self, condition: &str) -> bool {
        let status = self.vmi.status.as_ref();
        status.and_then(|status| find_condition(&status.conditions, condition)).is_some_and(Condition::is_true)
    }

    fn conflict(&self, why: &str) -> ApiError {
        ApiError::conflict(GUEST, self.vmi.metadata.name.as_deref().unwrap_or_default(), why)
    }

    fn refuse_if(&self, refused: bool, why: &str) -> ApiResult<()> {
        if refused { Err(self.conflict(why)) } else { Ok(()) }
    }

    fn is_running(&self) -> bool {
        let node = self.vmi.status.as_ref().and_then(|status| status.node_name.as_deref());
        self.phase() == Some(Phase::Running) && node.is_some_and(|node| !node.is_empty())
    }

    fn running(&self) -> ApiResult<()> {
        self.refuse_if(!self.is_running(), NOT_RUNNING)
    }

    /// The words differ from command to command.
    fn not_running(&self, command: Command) -> ApiError {
        match command {
            Command::Pause | Command::Freeze | Command::SoftReboot => self.conflict(MACHINE_NOT_RUNNING),
            Command::Unpause | Command::Unfreeze => self.conflict(NOT_RUNNING),
            Command::Reset => {
                let phase = self.phase().map_or("", Phase::as_str);
                self.conflict(&format!("Failed to reset non-running VMI with phase {phase}: {NOT_RUNNING}"))
            }
        }
    }

    /// A device that is there unless it was refused.
    fn has(&self, device: Option<bool>, why: &str) -> ApiResult<()> {
        if device == Some(false) { Err(ApiError::bad_request(why)) } else { Ok(()) }
    }

    /// Streams answer 400, not 409, when there is nothing to connect to.
    fn connectable(&self) -> ApiResult<()> {
        if self.is_running() { Ok(()) } else { Err(ApiError::bad_request(NOT_RUNNING)) }
    }

    fn agent(&self) -> ApiResult<()> {
        self.running()?;
        self.refuse_if(!self.is(conditions::AGENT_CONNECTED), NO_AGENT)
    }

    fn command(&self, command: Command) -> ApiResult<()> {
        if !self.is_running() {
            return Err(self.not_running(command));
        }
        let paused = self.is(conditions::PAUSED);
        match command {
            Command::Pause => {
                // Whatever looks from outside would take a paused guest for a dead one and end it.
                let probe = self.vmi.spec.liveness_probe.as_ref();
                if probe.is_some_and(|probe| probe.guest_agent_ping.is_none()) {
                    let why = "Pausing VMIs with a non-GuestAgentPing LivenessProbe is not supported";
                    return Err(ApiError::forbidden(GUEST, self.vmi.metadata.name.as_deref().unwrap_or_default(), why));
                }
                self.refuse_if(paused, "VMI is already paused")
            }
            Command::Unpause => self.refuse_if(!paused, "VMI is not paused"),
            Command::SoftReboot => {
                self.refuse_if(paused, PAUSED)?;
                let acpi = self.vmi.spec.domain.features.as_ref().and_then(|features| features.acpi);
                let deaf = !self.is(conditions::AGENT_CONNECTED) && !acpi.is_none_or(FeatureState::is_on);
                self.refuse_if(deaf, "VMI neither have the agent connected nor the ACPI feature enabled")
            }
            Command::Freeze | Command::Unfreeze | Command::Reset => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::subresources::wanted::{Port, Protocol};

    const CONSOLE: Wanted = Wanted::Stream(GuestStream::Console);
    const VNC: Wanted = Wanted::Stream(GuestStream::Vnc);
    const PORT: Wanted = Wanted::PortForward(Port { number: 22, protocol: Protocol::Tcp });

    /// A guest in a phase, with conditions that hold and more of a spec.
    fn guest(phase: &str, holds: &[&str], more: &Value) -> VirtualMachineInstance {
        let mut spec = json!({"domain": {"devices": {}}});
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let conditions: Vec<Value> = holds.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
        let status = json!({"phase": phase, "nodeName": "node1", "conditions": conditions});
        serde_json::from_value(json!({"metadata": {"name": "g"}, "spec": spec, "status": status})).unwrap()
    }

    fn refused(wanted: Wanted, vmi: &VirtualMachineInstance) -> (u16, String) {
        let error = check(&wanted, vmi).unwrap_err();
        (error.code().as_u16(), error.message().to_owned())
    }

    fn conflict(why: &str) -> (u16, String) {
        (409, format!("Operation cannot be fulfilled on virtualmachineinstance.kubevirt.io \"g\": {why}"))
    }

    #[test]
    fn a_running_guest_allows_most() {
        let vmi = guest("Running", &["AgentConnected"], &json!({}));
        let commands = [Command::Pause, Command::Freeze, Command::Unfreeze, Command::Reset, Command::SoftReboot];
        let rest = [CONSOLE, VNC, PORT, Wanted::Screenshot, Wanted::GuestInfo, Wanted::Users, Wanted::Filesystems];
        for wanted in commands.map(Wanted::Command).into_iter().chain(rest) {
            assert!(check(&wanted, &vmi).is_ok(), "{wanted:?}");
        }
        assert_eq!(refused(Wanted::Command(Command::Unpause), &vmi), conflict("VMI is not paused"));
    }

    #[test]
    fn a_guest_that_does_not_run_allows_nothing() {
        let vmi = guest("Scheduled", &["AgentConnected"], &json!({}));
        for wanted in [CONSOLE, VNC, Wanted::Screenshot] {
            assert_eq!(refused(wanted, &vmi), (400, NOT_RUNNING.to_owned()), "{wanted:?}");
        }
        for (command, why) in [
            (Command::Pause, MACHINE_NOT_RUNNING),
            (Command::Unpause, NOT_RUNNING),
            (Command::Freeze, MACHINE_NOT_RUNNING),
            (Command::Unfreeze, NOT_RUNNING),
            (Command::Reset, "Failed to reset non-running VMI with phase Scheduled: VMI is not running"),
            (Command::SoftReboot, MACHINE_NOT_RUNNING),
        ] {
            assert_eq!(refused(Wanted::Command(command), &vmi), conflict(why), "{command:?}");
        }
        assert_eq!(refused(PORT, &vmi), conflict(NOT_RUNNING));
        assert_eq!(refused(Wanted::Users, &vmi).0, 500);
        assert_eq!(refused(CONSOLE, &guest("Failed", &[], &json!({}))), conflict("VMI is in failed status"));
    }

    #[test]
    fn devices_that_were_refused_cannot_be_reached() {
        let devices = json!({"autoattachSerialConsole": false, "autoattachGraphicsDevice": false});
        let vmi = guest("Running", &[], &json!({"domain": {"devices": devices}}));
        assert_eq!(refused(CONSOLE, &vmi), (400, "No serial consoles are present.".to_owned()));
        assert_eq!(refused(Wanted::Screenshot, &vmi), (400, "No graphics devices are present.".to_owned()));
    }

    #[test]
    fn a_paused_guest_can_go_on_and_be_looked_at() {
        let vmi = guest("Running", &["Paused"], &json!({}));
        assert!(check(&Wanted::Command(Command::Unpause), &vmi).is_ok());
        assert!(check(&CONSOLE, &vmi).is_ok());
        assert_eq!(refused(Wanted::Command(Command::Pause), &vmi), conflict("VMI is already paused"));
        assert_eq!(refused(Wanted::Command(Command::SoftReboot), &vmi), conflict(PAUSED));
        assert_eq!(refused(PORT, &vmi), conflict(PAUSED));
    }

    #[test]
    fn probes_from_outside_forbid_a_pause() {
        let probed = |probe: Value| guest("Running", &[], &json!({"livenessProbe": probe}));
        let pause = Wanted::Command(Command::Pause);
        assert_eq!(refused(pause, &probed(json!({"tcpSocket": {"port": 22}}))).0, 403);
        assert!(check(&pause, &probed(json!({"guestAgentPing": {}}))).is_ok());
    }

    #[test]
    fn a_reboot_needs_somebody_who_listens() {
        let off = json!({"domain": {"devices": {}, "features": {"acpi": {"enabled": false}}}});
        let reboot = Wanted::Command(Command::SoftReboot);
        assert_eq!(refused(reboot, &guest("Running", &[], &off)).0, 409);
        assert!(check(&reboot, &guest("Running", &["AgentConnected"], &off)).is_ok());
    }

    #[test]
    fn a_guest_waits_for_the_snapshot_of_its_disks() {
        let machine = |status: Value| -> VirtualMachine {
            let template = json!({"spec": {"domain": {"devices": {}}}});
            serde_json::from_value(json!({"metadata": {"name": "g"}, "spec": {"template": template}, "status": status}))
                .unwrap()
        };
        assert!(check_machine(None).is_ok());
        assert!(check_machine(Some(&machine(json!({})))).is_ok());
        let error = check_machine(Some(&machine(json!({"snapshotInProgress": "s"})))).unwrap_err();
        let why = "Operation cannot be fulfilled on virtualmachine.kubevirt.io \"g\": VM snapshot is in progress";
        assert_eq!((error.code().as_u16(), error.message()), (409, why));
    }

    #[test]
    fn guest_facts_need_an_agent() {
        let (code, message) = refused(Wanted::GuestInfo, &guest("Running", &[], &json!({})));
        assert_eq!(code, 500);
        assert!(message.ends_with(NO_AGENT), "{message}");
    }
}
