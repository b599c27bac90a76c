//! The data volumes that a machine brings along: created when they are missing, awaited before a start.
//!
//! The kind belongs to an importer that is not part of this project yet. On a cluster that does not know it, a machine says so, and
//! goes on as soon as there are claims of the same names, whoever filled them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ferrovirt_api::meta::{ConditionStatus, find_condition};
use ferrovirt_api::names::{annotations, labels};
use ferrovirt_api::vm::{DataVolume, DataVolumeSpec, DataVolumeTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::instance::owner;
use super::observe::{DataVolumes, Machine};

/// How long a data volume may have no phase before people hear that nobody seems to work on it.
const IMPORTER_PATIENCE: Duration = Duration::from_secs(60);
/// The condition of a data volume whose worker runs or does not.
const RUNNING: &str = "Running";

/// How far a machine's data volumes are.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Filling {
    /// All are filled, or there are none.
    Ready,
    /// Some are not filled yet.
    Awaited {
        /// Which, and how far they are.
        message: String,
        /// When to look again: not everything that is awaited makes itself heard.
        look_again: Option<Duration>,
    },
    /// One has failed.
    Failed {
        /// Which, and why.
        message: String,
    },
    /// They cannot be made here.
    Impossible {
        /// Which, and what to do.
        message: String,
    },
}

/// How far the machine's data volumes are.
pub(super) fn filling(machine: &Machine) -> Filling {
    if let Some(message) = foreign_source(machine) {
        return Filling::Impossible { message };
    }
    let templates: Vec<&str> = template_names(machine).collect();
    match &machine.data_volumes {
        DataVolumes::NotServed => without_importer(machine, &templates),
        DataVolumes::NotListed if templates.is_empty() => Filling::Ready,
        DataVolumes::NotListed => {
            let message = "the cluster's data volumes are not known yet".to_owned();
            Filling::Awaited { message, look_again: Some(Duration::from_secs(1)) }
        }
        DataVolumes::Listed(found) => with_importer(machine, &templates, found),
    }
}

fn template_names(machine: &Machine) -> impl Iterator<Item = &str> {
    machine.vm.spec.data_volume_templates.iter().filter_map(template_name)
}

fn template_name(template: &DataVolumeTemplateSpec) -> Option<&str> {
    template.metadata.as_ref()?.name.as_deref()
}

fn without_importer(machine: &Machine, templates: &[&str]) -> Filling {
    let has_claim = |name: &str| machine.claims.get(name).is_some_and(Option::is_some);
    let missing: Vec<&str> = templates.iter().copied().filter(|name| !has_claim(name)).collect();
    if missing.is_empty() {
        return Filling::Ready;
    }
    let names = missing.join(", ");
    let message = format!(
        "spec.dataVolumeTemplates: {names} cannot be made, because this cluster does not serve DataVolumes \
         (cdi.kubevirt.io/v1beta1); the importer comes later. Go on without it: create PersistentVolumeClaims of these names"
    );
    Filling::Impossible { message }
}

fn with_importer(machine: &Machine, templates: &[&str], found: &BTreeMap<String, Option<Arc<DataVolume>>>) -> Filling {
    let volumes: Vec<(&str, Option<&Arc<DataVolume>>)> =
        found.iter().map(|(name, volume)| (name.as_str(), volume.as_ref())).collect();
    if let Some(message) = volumes.iter().find_map(|(name, volume)| failure(name, (*volume)?)) {
        return Filling::Failed { message };
    }
    let waits: Vec<String> =
        volumes.iter().filter_map(|(name, volume)| awaited(machine, templates, name, *volume)).collect();
    if waits.is_empty() {
        return Filling::Ready;
    }
    let silent = volumes.iter().filter_map(|(_, volume)| (*volume).filter(|volume| phase(volume).is_empty()));
    let look_again = silent.map(|volume| IMPORTER_PATIENCE.saturating_sub(age(machine, volume))).min();
    Filling::Awaited { message: waits.join("; "), look_again: look_again.filter(|rest| !rest.is_zero()) }
}

fn phase(volume: &DataVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn age(machine: &Machine, volume: &DataVolume) -> Duration {
    let created = volume.metadata.creation_timestamp.as_ref().map_or(machine.now, |created| created.0);
    Duration::try_from(machine.now.duration_since(created)).unwrap_or_default()
}

/// Why a data volume has failed, if it has.
fn failure(name: &str, volume: &DataVolume) -> Option<String> {
    if phase(volume) == "Failed" {
        return Some(format!("DataVolume {name} failed: look at its events, then delete it to have it made again"));
    }
    let running = find_condition(&volume.status.as_ref()?.conditions, RUNNING)?;
    let is_broken = running.status == ConditionStatus::False && running.reason.as_deref() == Some("Error");
    let why = running.message.as_deref().unwrap_or("its worker fails");
    is_broken.then(|| format!("DataVolume {name} fails: {why}"))
}

/// What is still missing of a data volume; one that nobody has made counts when the machine brings it along.
fn awaited(machine: &Machine, templates: &[&str], name: &str, volume: Option<&Arc<DataVolume>>) -> Option<String> {
    let Some(volume) = volume else {
        let is_ours = templates.contains(&name);
        return is_ours.then(|| format!("DataVolume {name} does not exist yet"));
    };
    match phase(volume) {
        "Succeeded" | "WaitForFirstConsumer" | "PendingPopulation" => None,
        "" if age(machine, volume) >= IMPORTER_PATIENCE => Some(format!(
            "DataVolume {name} is not being worked on: no importer answers. Install one, or create the claim {name} and remove the \
             data volume"
        )),
        "" => Some(format!("DataVolume {name} waits for an importer")),
        phase => {
            let progress = volume.status.as_ref().and_then(|status| status.progress.as_deref());
            Some(progress.map_or_else(
                || format!("DataVolume {name}: {phase}"),
                |done| format!("DataVolume {name}: {phase} {done}"),
            ))
        }
    }
}

/// Content from another namespace would be read with this controller's rights instead of the author's.
fn foreign_source(machine: &Machine) -> Option<String> {
    let own = machine.vm.metadata.namespace.as_deref();
    machine.vm.spec.data_volume_templates.iter().enumerate().find_map(|(index, template)| {
        let namespace = source_namespace(&template.spec)?;
        (Some(namespace) != own && !namespace.is_empty()).then(|| {
            format!(
                "spec.dataVolumeTemplates[{index}]: content from namespace {namespace} is not supported yet; create the DataVolume \
                 yourself, with your own rights, and refer to it"
            )
        })
    })
}

fn source_namespace(spec: &DataVolumeSpec) -> Option<&str> {
    let source = spec.source.as_ref();
    let claim = source.and_then(|source| source.pvc.as_ref()).map(|claim| claim.namespace.as_str());
    let snapshot = source.and_then(|source| source.snapshot.as_ref()).map(|snapshot| snapshot.namespace.as_str());
    let reference = spec.source_ref.as_ref().and_then(|reference| reference.namespace.as_deref());
    claim.or(snapshot).or(reference)
}

/// Data volumes that the machine brings along and that are not there.
pub(super) fn missing(machine: &Machine) -> Vec<DataVolume> {
    let DataVolumes::Listed(found) = &machine.data_volumes else { return Vec::new() };
    if foreign_source(machine).is_some() {
        return Vec::new();
    }
    let is_missing = |template: &&DataVolumeTemplateSpec| {
        template_name(template).is_some_and(|name| found.get(name).is_none_or(Option::is_none))
    };
    machine
        .vm
        .spec
        .data_volume_templates
        .iter()
        .filter(is_missing)
        .map(|template| data_volume(machine, template))
        .collect()
}

/// Whether the machine wants its data volumes before its first start.
pub(super) fn are_made_at_once(machine: &Machine) -> bool {
    let notes = machine.vm.metadata.annotations.as_ref();
    notes.and_then(|notes| notes.get(annotations::IMMEDIATE_DATA_VOLUME_CREATION)).is_none_or(|value| value != "false")
}

fn data_volume(machine: &Machine, template: &DataVolumeTemplateSpec) -> DataVolume {
    let given = template.metadata.clone().unwrap_or_default();
    let mut notes = given.annotations.unwrap_or_default();
    notes.insert(annotations::CDI_ALLOW_CLAIM_ADOPTION.to_owned(), "true".to_owned());
    let mut marks = given.labels.unwrap_or_default();
    marks.insert(labels::CREATED_BY.to_owned(), machine.uid().to_owned());
    DataVolume {
        metadata: ObjectMeta {
            name: given.name,
            namespace: machine.vm.metadata.namespace.clone(),
            labels: Some(marks),
            annotations: Some(notes),
            owner_references: Some(vec![owner(&machine.vm)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}
