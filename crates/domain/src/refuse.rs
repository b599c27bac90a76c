//! Fields that nothing implements yet. They are refused before anything else, so that a guest never runs without what its owner
//! asked for.

use ferrovirt_api::names::annotations;
use ferrovirt_api::vmi::{AccessCredential, Architecture, Devices, DomainSpec, Interface, MemLockRequirement};
use ferrovirt_api::{ToJson, VirtualMachineInstance};

use serde_json::Value;

use crate::unsupported::Unsupported;

type Outcome = Result<(), Unsupported>;

/// Refuses a guest that asks for something that is not supported.
pub(crate) fn refuse(vmi: &VirtualMachineInstance) -> Outcome {
    let spec = &vmi.spec;
    if let Some(architecture) = spec.architecture.filter(|architecture| *architecture != Architecture::Amd64) {
        let why = "only amd64 guests are supported";
        return Err(Unsupported::new("spec.architecture", architecture.as_str(), why));
    }
    for name in [annotations::HOOK_SIDECARS, annotations::PLACE_PCI_ON_ROOT_COMPLEX] {
        if let Some(value) = vmi.metadata.annotations.as_ref().and_then(|annotations| annotations.get(name)) {
            return Err(Unsupported::yet(format!("metadata.annotations[{name}]"), value));
        }
    }
    if let Some(claim) = spec.resource_claims.first() {
        return Err(Unsupported::yet("spec.resourceClaims", &claim.name));
    }
    if let Some(volume) = spec.utility_volumes.first() {
        return Err(Unsupported::yet("spec.utilityVolumes", &volume.name));
    }
    for (index, credential) in spec.access_credentials.iter().enumerate() {
        access_credential(index, credential)?;
    }
    domain(&spec.domain)?;
    devices(&spec.domain.devices)?;
    if let Ok(fields) = spec.domain.to_json() {
        unprintable(&fields, "spec.domain")?;
    }
    if let Some(ignition) = vmi.metadata.annotations.as_ref().and_then(|all| all.get(annotations::IGNITION_DATA)) {
        unprintable(&Value::from(ignition.as_str()), &format!("metadata.annotations[{}]", annotations::IGNITION_DATA))?;
    }
    spec.domain.devices.interfaces.iter().try_for_each(interface)
}

/// Characters that XML cannot hold, not even escaped: libvirt would only say that the document is broken.
fn unprintable(value: &Value, path: &str) -> Outcome {
    let broken = |character: &char| {
        (character.is_control() && !['\n', '\t', '\r'].contains(character))
            || ['\u{fffe}', '\u{ffff}'].contains(character)
    };
    match value {
        Value::String(text) => text.chars().find(broken).map_or(Ok(()), |character| {
            Err(Unsupported::new(path, character.escape_unicode(), "control characters cannot be used here"))
        }),
        Value::Array(items) => {
            items.iter().enumerate().try_for_each(|(index, item)| unprintable(item, &format!("{path}[{index}]")))
        }
        Value::Object(fields) => {
            fields.iter().try_for_each(|(name, field)| unprintable(field, &format!("{path}.{name}")))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

fn access_credential(index: usize, credential: &AccessCredential) -> Outcome {
    let path = format!("spec.accessCredentials[{index}]");
    if let Some(password) = &credential.user_password {
        let secret = password.source.secret.as_ref().map_or("", |secret| secret.secret_name.as_str());
        return Err(Unsupported::yet(format!("{path}.userPassword"), secret));
    }
    let method = credential.ssh_public_key.as_ref().map(|key| &key.propagation_method);
    if let Some(agent) = method.and_then(|method| method.qemu_guest_agent.as_ref()) {
        let path = format!("{path}.sshPublicKey.propagationMethod.qemuGuestAgent");
        let why = "not supported yet; noCloud and configDrive are";
        return Err(Unsupported::new(path, agent.users.join(","), why));
    }
    Ok(())
}

fn domain(domain: &DomainSpec) -> Outcome {
    if let Some(security) = &domain.launch_security {
        let kind = [(security.sev.is_some(), "sev"), (security.snp.is_some(), "snp"), (security.tdx.is_some(), "tdx")];
        let kind = kind.iter().find(|(asked, _)| *asked).map_or("{}", |(_, kind)| kind);
        return Err(Unsupported::yet("spec.domain.launchSecurity", kind));
    }
    if let Some(realtime) = domain.cpu.as_ref().and_then(|cpu| cpu.realtime.as_ref()) {
        let mask = realtime.mask.as_deref().unwrap_or("all CPUs");
        return Err(Unsupported::yet("spec.domain.cpu.realtime", mask));
    }
    let overhead = domain.memory.as_ref().and_then(|memory| memory.reserved_overhead.as_ref());
    if overhead.is_some_and(|overhead| overhead.mem_lock == Some(MemLockRequirement::Required)) {
        return Err(Unsupported::yet("spec.domain.memory.reservedOverhead.memLock", "Required"));
    }
    let efi = domain.firmware.as_ref().and_then(|firmware| firmware.bootloader.as_ref()?.efi.as_ref());
    if efi.is_some_and(|efi| efi.persistent == Some(true)) {
        return Err(Unsupported::yet("spec.domain.firmware.bootloader.efi.persistent", true));
    }
    Ok(())
}

fn devices(devices: &Devices) -> Outcome {
    const PATH: &str = "spec.domain.devices";
    let named = [
        ("gpus", devices.gpus.first().map(|gpu| gpu.name.as_str())),
        ("hostDevices", devices.host_devices.first().map(|device| device.name.as_str())),
        ("downwardMetrics", devices.downward_metrics.map(|_| "{}")),
        ("clientPassthrough", devices.client_passthrough.map(|_| "{}")),
    ];
    for (field, name) in named {
        if let Some(name) = name {
            return Err(Unsupported::yet(format!("{PATH}.{field}"), name));
        }
    }
    if devices.tpm.as_ref().is_some_and(|tpm| tpm.persistent == Some(true) && tpm.enabled != Some(false)) {
        return Err(Unsupported::yet(format!("{PATH}.tpm.persistent"), true));
    }
    if let Some(watchdog) = devices.watchdog.as_ref().filter(|watchdog| watchdog.diag288.is_some()) {
        let why = "this is the watchdog of s390x machines; use i6300esb";
        return Err(Unsupported::new(format!("{PATH}.watchdog.diag288"), &watchdog.name, why));
    }
    for disk in &devices.disks {
        let path = format!("{PATH}.disks[{}]", disk.name);
        if disk.lun.as_ref().is_some_and(|lun| lun.reservation) {
            return Err(Unsupported::yet(format!("{path}.lun.reservation"), true));
        }
        if disk.changed_block_tracking == Some(true) {
            return Err(Unsupported::yet(format!("{path}.changedBlockTracking"), true));
        }
    }
    Ok(())
}

fn interface(interface: &Interface) -> Outcome {
    let bindings = [
        ("slirp", interface.slirp.map(|_| "{}")),
        ("sriov", interface.sriov.map(|_| "{}")),
        ("macvtap", interface.macvtap.map(|_| "{}")),
        ("passt", interface.passt.map(|_| "{}")),
        ("passtBinding", interface.passt_binding.map(|_| "{}")),
        ("binding", interface.binding.as_ref().map(|binding| binding.name.as_str())),
    ];
    for (field, value) in bindings {
        if let Some(value) = value {
            let path = format!("spec.domain.devices.interfaces[{}].{field}", interface.name);
            return Err(Unsupported::new(path, value, "not supported yet; masquerade and bridge are"));
        }
    }
    Ok(())
}
