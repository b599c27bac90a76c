//! What is refused when an object is written: every cause with its field, all of them at once.
//!
//! Pure functions over objects that have their [defaults](crate::defaults); the cluster's configuration and facts about other objects are
//! arguments. The rules are tables: each row has the rule's name, the field, the type of cause and the judgement with its words. They
//! serve admission, `virtctl validate` and the tests, which have one case for each name in [`rules`].
//!
//! | file | rules about |
//! |---|---|
//! | `metadata` | labels and annotations |
//! | `lifecycle`, `placement` | identity, probes, DNS, credentials; affinity, spread, tolerations |
//! | `resources`, `machine` | CPU and memory; machine type, firmware, clock, features |
//! | `volumes`, `disks`, `pci` | storage, and the places of devices |
//! | `networks`, `devices` | network cards; everything else that is plugged in |
//! | `unsupported` | what is not implemented yet, in one list |
//! | `vm`, `vmi_update` | virtual machines; changes to guests |
//! | `migration`, `migration_policy`, `kubevirt` | the other kinds |
//! | `configuration` | which settings of the cluster do something, in one list |

mod configuration;
mod devices;
mod disks;
mod kubevirt;
mod lifecycle;
mod machine;
mod metadata;
mod migration;
mod migration_policy;
mod networks;
mod pci;
mod placement;
mod resources;
mod table;
mod text;
mod unsupported;
mod vm;
mod vmi_update;
mod volumes;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use self::table::{Findings, Path};
use crate::kubevirt::Configuration;
use crate::string_enum::string_enum;
use crate::vmi::{VirtualMachineInstance, VirtualMachineInstanceSpec, Volume};

pub use kubevirt::{check_kubevirt, check_kubevirt_delete, check_new_kubevirt, kubevirt_warnings};
pub use migration::{check_migration_update, check_new_migration};
pub use migration_policy::check_migration_policy;
pub use table::RuleInfo;
pub use unsupported::fields as unsupported_fields;
pub use vm::{check_vm, check_vm_status, check_vm_update, vm_warnings};
pub use vmi_update::check_vmi_update;

string_enum! {
    /// The kind of a [`Cause`], as `details.causes[].reason` of a refusal spells it.
    pub enum Reason {
        /// The value is not allowed.
        Invalid = "FieldValueInvalid",
        /// The value is missing.
        Required = "FieldValueRequired",
        /// The value names something that does not exist.
        NotFound = "FieldValueNotFound",
        /// The value is not one of a closed set.
        NotSupported = "FieldValueNotSupported",
        /// Another element has the same value.
        Duplicate = "FieldValueDuplicate",
    }
}

/// One thing that is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The rule that it breaks, one of [`rules`].
    pub rule: &'static str,
    /// Its kind.
    pub reason: Reason,
    /// Where, such as `spec.volumes[1].name`.
    pub field: String,
    /// What is wrong and what to do.
    pub message: String,
}

/// A guest as its rules see it: one of its own, or the template of a virtual machine.
struct Guest<'a> {
    metadata: Option<&'a ObjectMeta>,
    spec: &'a VirtualMachineInstanceSpec,
    cluster: &'a Configuration,
}

impl<'a> Guest<'a> {
    fn annotation(&self, name: &str) -> Option<&'a str> {
        self.metadata?.annotations.as_ref()?.get(name).map(String::as_str)
    }

    fn label(&self, name: &str) -> Option<&'a str> {
        self.metadata?.labels.as_ref()?.get(name).map(String::as_str)
    }

    fn volume(&self, name: &str) -> Option<&'a Volume> {
        self.spec.volumes.iter().find(|volume| volume.name == name)
    }

    /// Every rule for guests. `component` when the author is one of us, who may set the system's labels.
    fn check(&self, metadata: &Path<'_>, spec: &Path<'_>, component: bool, findings: &mut Findings) {
        metadata::check(self, metadata, component, findings);
        lifecycle::check(self, spec, findings);
        placement::check(self, spec, findings);
        resources::check(self, spec, findings);
        machine::check(self, spec, findings);
        volumes::check(self, spec, findings);
        disks::check(self, spec, findings);
        networks::check(self, spec, findings);
        devices::check(self, spec, findings);
        unsupported::check(self, spec, metadata, findings);
    }

    /// What its author should know, although it is let in.
    fn advice(&self, spec: &Path<'_>) -> Vec<String> {
        unsupported::warnings(self).chain(resources::beyond_machines(self, spec)).collect()
    }
}

/// Everything that is wrong with a guest that has its defaults. `component` when its author is one of us, who may set the system's
/// labels.
#[must_use]
pub fn check_vmi(vmi: &VirtualMachineInstance, cluster: &Configuration, component: bool) -> Vec<Cause> {
    let mut findings = Findings::default();
    let guest = Guest { metadata: Some(&vmi.metadata), spec: &vmi.spec, cluster };
    guest.check(&Path::root("metadata"), &Path::root("spec"), component, &mut findings);
    findings.causes
}

/// What a guest asks for and nothing implements yet; [`check_vmi`] has it too.
#[must_use]
pub fn unsupported(vmi: &VirtualMachineInstance, cluster: &Configuration) -> Vec<Cause> {
    let mut findings = Findings::default();
    let guest = Guest { metadata: Some(&vmi.metadata), spec: &vmi.spec, cluster };
    unsupported::check(&guest, &Path::root("spec"), &Path::root("metadata"), &mut findings);
    findings.causes
}

/// Advice for the author of a guest that has its defaults.
#[must_use]
pub fn vmi_warnings(vmi: &VirtualMachineInstance, cluster: &Configuration) -> Vec<String> {
    let guest = Guest { metadata: Some(&vmi.metadata), spec: &vmi.spec, cluster };
    guest.advice(&Path::root("spec"))
}

/// What a guest asks for and no machine has, one sentence for each: it is admitted, as on KubeVirt, and no node takes it.
#[must_use]
pub fn beyond_machines(vmi: &VirtualMachineInstance, cluster: &Configuration) -> Vec<String> {
    let guest = Guest { metadata: Some(&vmi.metadata), spec: &vmi.spec, cluster };
    resources::beyond_machines(&guest, &Path::root("spec"))
}

/// Every rule that there is, by name.
#[must_use]
pub fn rules() -> Vec<RuleInfo> {
    let guests = metadata::rules()
        .chain(lifecycle::rules())
        .chain(placement::rules())
        .chain(resources::rules())
        .chain(machine::rules())
        .chain(volumes::rules())
        .chain(disks::rules())
        .chain(networks::rules())
        .chain(devices::rules())
        .chain(unsupported::rules());
    let others = vm::rules()
        .chain(vmi_update::rules())
        .chain(migration::rules())
        .chain(migration_policy::rules())
        .chain(kubevirt::rules());
    guests.chain(others).collect()
}

/// The causes as one sentence: the first ten, and how many more there are.
#[must_use]
pub fn summary(causes: &[Cause]) -> String {
    const SHOWN: usize = 10;
    let messages: Vec<&str> = causes.iter().take(SHOWN).map(|cause| cause.message.as_str()).collect();
    let more = causes.len().saturating_sub(SHOWN);
    if more == 0 { messages.join(", ") } else { format!("{}, and {more} more", messages.join(", ")) }
}
