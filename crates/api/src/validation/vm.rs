//! Virtual machines: when a guest runs, the volumes that come along, and the template, which has to make guests that can start.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Reason::{Duplicate, Invalid, NotFound, NotSupported, Required};
use super::resources::MEMORY_IS_GIVEN;
use super::table::{Findings, Path, Problem, Row, RuleInfo, if_so, names, when};
use super::text::is_dns_subdomain;
use super::{Cause, Guest};
use crate::VirtualMachine;
use crate::defaults::{Inputs, default_template};
use crate::kubevirt::Configuration;
use crate::vm::{DataVolumeTemplateSpec, RunStrategy, UpdateVolumesStrategy, VolumeRequest};
use crate::vmi::{VirtualMachineInstance, VirtualMachineInstanceSpec};

type MachineRule = Row<fn(&MachineOf<'_>) -> Problem>;
type TemplateRule = Row<fn(&TemplateOf<'_>) -> Problem>;
type ChangeRule = Row<fn(&Change<'_>) -> Problem>;
type RequestRule = Row<fn(&RequestOf<'_>) -> Problem>;

struct MachineOf<'a> {
    vm: &'a VirtualMachine,
}

const MACHINE: &[MachineRule] = &[
    ("running-or-run-strategy-is-given", "runStrategy", Required, |it| {
        let neither = it.vm.spec.running.is_none() && it.vm.spec.run_strategy.is_none();
        if_so(neither, "is missing: say when the guest shall run, such as Always, Halted or Manual")
    }),
    ("running-excludes-run-strategy", "running", Invalid, |it| {
        let both = it.vm.spec.running.is_some() && it.vm.spec.run_strategy.is_some();
        if_so(both, "cannot be there together with runStrategy: keep runStrategy")
    }),
    ("wait-as-receiver-is-not-supported-yet", "runStrategy", NotSupported, |it| {
        let waits = it.vm.spec.run_strategy == Some(RunStrategy::WaitAsReceiver);
        if_so(waits, "is 'WaitAsReceiver', which is not supported yet; use another one")
    }),
    ("instancetypes-are-not-supported-yet", "instancetype", NotSupported, |it| {
        if_so(it.vm.spec.instancetype.is_some(), "is not supported yet; write its values into template.spec.domain")
    }),
    ("preferences-are-not-supported-yet", "preference", NotSupported, |it| {
        if_so(it.vm.spec.preference.is_some(), "is not supported yet; write its values into template.spec.domain")
    }),
    ("volume-migration-is-not-supported-yet", "updateVolumesStrategy", NotSupported, |it| {
        let moves = it.vm.spec.update_volumes_strategy == Some(UpdateVolumesStrategy::Migration);
        if_so(moves, "is 'Migration', which is not supported yet; use Replacement")
    }),
];

struct TemplateOf<'a> {
    template: &'a DataVolumeTemplateSpec,
    index: usize,
    vm: &'a VirtualMachine,
}

impl<'a> TemplateOf<'a> {
    fn name(&self) -> Option<&'a str> {
        name(self.template)
    }

    /// How many places say where the content comes from.
    fn sources(&self) -> usize {
        let spec = &self.template.spec;
        let populated = spec.pvc.as_ref().is_some_and(|pvc| pvc.data_source.is_some() || pvc.data_source_ref.is_some())
            || spec.storage.as_ref().is_some_and(|it| it.data_source.is_some() || it.data_source_ref.is_some());
        usize::from(spec.source.is_some()) + usize::from(spec.source_ref.is_some()) + usize::from(populated)
    }
}

fn name(template: &DataVolumeTemplateSpec) -> Option<&str> {
    template.metadata.as_ref()?.name.as_deref().filter(|name| !name.is_empty())
}

const TEMPLATE: &[TemplateRule] = &[
    ("data-volume-template-has-a-name", "metadata.name", Required, |it| {
        if_so(it.name().is_none(), "is missing: volumes refer to the data volume by its name")
    }),
    ("data-volume-template-name-is-one", "metadata.name", Invalid, |it| {
        let name = it.name()?;
        when(!is_dns_subdomain(name), || {
            format!("is '{name}', which is no name of an object: use lower case letters, digits, '-' and '.'")
        })
    }),
    ("data-volume-template-names-differ", "metadata.name", Duplicate, |it| {
        let own = it.name()?;
        let before = &it.vm.spec.data_volume_templates[..it.index];
        when(before.iter().any(|other| name(other) == Some(own)), || {
            format!("is '{own}', as that of one before it: names must differ")
        })
    }),
    ("data-volume-template-has-pvc-or-storage", "spec", Invalid, |it| {
        if_so(
            it.template.spec.pvc.is_some() == it.template.spec.storage.is_some(),
            "must have exactly one of pvc and storage",
        )
    }),
    ("data-volume-template-has-one-source", "spec", Invalid, |it| {
        if_so(it.sources() != 1, "must have exactly one of source, sourceRef and a dataSource of its claim")
    }),
    ("data-volume-source-is-one", "spec.source", Invalid, |it| {
        let source = it.template.spec.source.as_ref()?;
        let kinds = [
            source.http.is_some(),
            source.s3.is_some(),
            source.gcs.is_some(),
            source.registry.is_some(),
            source.pvc.is_some(),
            source.upload.is_some(),
            source.blank.is_some(),
            source.imageio.is_some(),
            source.vddk.is_some(),
            source.snapshot.is_some(),
        ];
        if_so(
            kinds.into_iter().filter(|set| *set).count() != 1,
            "must have exactly one source, such as http, registry or blank",
        )
    }),
    ("data-volume-template-is-used", "metadata.name", NotFound, |it| {
        let name = it.name()?;
        let volumes = &it.vm.spec.template.spec.volumes;
        let used = volumes.iter().any(|volume| {
            let claim = volume.persistent_volume_claim.as_ref().is_some_and(|claim| claim.claim_name == name);
            claim || volume.data_volume.as_ref().is_some_and(|data| data.name == name)
        });
        when(!used, || format!("is '{name}', but no volume of spec.template.spec.volumes refers to it"))
    }),
    ("data-volume-template-is-in-the-namespace", "metadata.namespace", Invalid, |it| {
        let namespace =
            it.template.metadata.as_ref()?.namespace.as_deref().filter(|namespace| !namespace.is_empty())?;
        let own = it.vm.metadata.namespace.as_deref()?;
        when(namespace != own, || format!("is '{namespace}': it must be the machine's own, {own}"))
    }),
];

/// Everything that is wrong with a virtual machine that has its defaults. `inputs` stand in for those of the guest's start.
#[must_use]
pub fn check_vm(vm: &VirtualMachine, cluster: &Configuration, inputs: &Inputs, component: bool) -> Vec<Cause> {
    let mut findings = Findings::default();
    let path = Path::root("spec");
    findings.apply(MACHINE, &MachineOf { vm }, &path);
    let list = path.field("dataVolumeTemplates");
    for (index, template) in vm.spec.data_volume_templates.iter().enumerate() {
        findings.apply(TEMPLATE, &TemplateOf { template, index, vm }, &list.index(index));
    }
    let template = &vm.spec.template;
    let spec = spec_of_guests(vm, cluster, inputs);
    let guest = Guest { metadata: template.metadata.as_ref(), spec: &spec, cluster };
    let (metadata, spec) = (path.field("template.metadata"), path.field("template.spec"));
    guest.check(&metadata, &spec, component, &mut findings);
    // The guest is refused then, and the machine says so.
    findings.causes.retain(|cause| cause.rule != MEMORY_IS_GIVEN);
    findings.causes
}

/// What is judged is the guest that the template will make.
fn spec_of_guests(vm: &VirtualMachine, cluster: &Configuration, inputs: &Inputs) -> VirtualMachineInstanceSpec {
    let mut spec = vm.spec.template.spec.clone();
    default_template(&mut spec, cluster, inputs);
    spec
}

/// A change of a machine.
struct Change<'a> {
    old: &'a VirtualMachine,
    new: &'a VirtualMachine,
}

impl Change<'_> {
    fn changes_run_strategy(&self) -> bool {
        self.old.spec.effective_run_strategy() != self.new.spec.effective_run_strategy()
    }

    fn is_in_snapshot(&self) -> bool {
        let status = self.old.status.as_ref();
        status.is_some_and(|status| status.snapshot_in_progress.as_deref().is_some_and(|name| !name.is_empty()))
    }

    fn is_in_restore(&self) -> bool {
        let status = self.old.status.as_ref();
        status.is_some_and(|status| status.restore_in_progress.as_deref().is_some_and(|name| !name.is_empty()))
    }
}

const CHANGE: &[ChangeRule] = &[
    ("volumes-stay-during-a-snapshot", "template.spec", Invalid, |it| {
        let parts = |spec: &VirtualMachineInstanceSpec| (spec.volumes.clone(), spec.domain.devices.disks.clone());
        let changed = it.is_in_snapshot() && parts(&it.old.spec.template.spec) != parts(&it.new.spec.template.spec);
        if_so(changed, "cannot change volumes or disks while a snapshot is taken: wait for its end")
    }),
    ("run-strategy-stays-during-a-snapshot", "runStrategy", Invalid, |it| {
        if_so(
            it.is_in_snapshot() && it.changes_run_strategy(),
            "cannot change while a snapshot is taken: wait for its end",
        )
    }),
    ("run-strategy-stays-during-a-restore", "runStrategy", Invalid, |it| {
        if_so(
            it.is_in_restore() && it.changes_run_strategy(),
            "cannot change while a snapshot is restored: wait for its end",
        )
    }),
];

/// Everything that is wrong with a change of a virtual machine, besides what is wrong with its result.
#[must_use]
pub fn check_vm_update(old: &VirtualMachine, new: &VirtualMachine) -> Vec<Cause> {
    let mut findings = Findings::default();
    findings.apply(CHANGE, &Change { old, new }, &Path::root("spec"));
    findings.causes
}

/// A request to plug or unplug a volume.
struct RequestOf<'a> {
    request: &'a VolumeRequest,
    index: usize,
    vm: &'a VirtualMachine,
    guest: Option<&'a VirtualMachineInstance>,
}

impl<'a> RequestOf<'a> {
    fn name(&self) -> Option<&'a str> {
        request_name(self.request)
    }
}

fn request_name(request: &VolumeRequest) -> Option<&str> {
    let add = request.add_volume_options.as_ref().map(|options| options.name.as_str());
    add.or_else(|| request.remove_volume_options.as_ref().map(|options| options.name.as_str()))
}

const REQUEST: &[RequestRule] = &[
    ("volume-request-adds-or-removes", "", Invalid, |it| {
        let both = it.request.add_volume_options.is_some() == it.request.remove_volume_options.is_some();
        if_so(both, "must have exactly one of addVolumeOptions and removeVolumeOptions")
    }),
    ("volume-request-has-a-name", "", Required, |it| if_so(it.name().is_none_or(str::is_empty), "names no volume")),
    ("volume-requests-differ", "", Duplicate, |it| {
        let name = it.name()?;
        let requests = it.vm.status.as_ref().map_or(&[][..], |status| &status.volume_requests);
        let before = requests.get(..it.index).unwrap_or_default();
        when(before.iter().any(|other| request_name(other) == Some(name)), || {
            format!("is about '{name}', as one before it")
        })
    }),
    ("volume-to-remove-is-there", "removeVolumeOptions.name", NotFound, |it| {
        let name = &it.request.remove_volume_options.as_ref()?.name;
        let has = it.vm.spec.template.spec.volumes.iter().any(|volume| volume.name == *name);
        when(!has, || format!("is '{name}', but the machine has no volume of that name"))
    }),
    ("volume-requests-wait-for-migrations", "", Invalid, |it| {
        let state = it.guest?.status.as_ref()?.migration_state.as_ref()?;
        if_so(
            state.start_timestamp.is_some() && state.end_timestamp.is_none(),
            "cannot be served while the guest moves: wait for its end",
        )
    }),
];

/// Everything that is wrong with the requests in a machine's status. `guest` is the running one.
#[must_use]
pub fn check_vm_status(vm: &VirtualMachine, guest: Option<&VirtualMachineInstance>) -> Vec<Cause> {
    let mut findings = Findings::default();
    let list = Path::root("status.volumeRequests");
    let requests = vm.status.as_ref().map_or(&[][..], |status| &status.volume_requests);
    for (index, request) in requests.iter().enumerate() {
        findings.apply(REQUEST, &RequestOf { request, index, vm, guest }, &list.index(index));
    }
    findings.causes
}

/// Advice for the author of a machine. `inputs` stand in for those of the guest's start.
#[must_use]
pub fn vm_warnings(vm: &VirtualMachine, cluster: &Configuration, inputs: &Inputs) -> Vec<String> {
    let deprecated = "spec.running is deprecated, please use spec.runStrategy instead.";
    let metadata: Option<&ObjectMeta> = vm.spec.template.metadata.as_ref();
    let spec = spec_of_guests(vm, cluster, inputs);
    let guest = Guest { metadata, spec: &spec, cluster };
    let running = vm.spec.running.map(|_| deprecated.to_owned());
    let sizeless = guest.guest_memory().is_none().then(|| {
        "spec.template.spec.domain.memory.guest is missing: guests of this machine will be refused until it is set"
            .to_owned()
    });
    running.into_iter().chain(sizeless).chain(guest.advice(&Path::root("spec.template.spec"))).collect()
}

pub(super) fn rules() -> impl Iterator<Item = RuleInfo> {
    names(MACHINE).chain(names(TEMPLATE)).chain(names(CHANGE)).chain(names(REQUEST))
}
