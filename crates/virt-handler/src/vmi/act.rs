//! Doing what was decided.

use std::sync::Arc;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_domain::Claims;
use ferrovirt_kubernetes::Pod;
use ferrovirt_launcher_rpc::messages::StartRequest;
use ferrovirt_reconcile::controller::Category;
use ferrovirt_reconcile::events::reference;
use ferrovirt_reconcile::{Act, Failure, Note, ObjectKey};

use super::decide::Action;
use super::moves;
use super::{Guests, World};
use crate::container_disks::{self, ContainerDiskError};
use crate::launcher::{Command, LauncherError};
use crate::process::PodProcess;
use crate::wiring::WiringError;
use crate::{devices, host_disks, volumes};

impl Act<Guests> for Action {
    fn name(&self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Command(command) => command.path(),
            Self::BeginMove => "begin move",
            Self::Carry => "carry",
            Self::CancelMove(_) => "cancel move",
            Self::TellVerdict(..) => "tell verdict",
            Self::Tell { .. } => "tell",
        }
    }

    async fn act(self, guests: &Guests, key: &ObjectKey) -> Result<(), Failure> {
        match self {
            Self::Start => guests.starts.take(start(guests, key)).await,
            Self::Command(wanted) => command(guests, key, wanted).await,
            Self::BeginMove => moves::begin(guests, key).await,
            Self::Carry => moves::carry(guests, key).await,
            Self::CancelMove(reason) => moves::cancel(guests, key, reason).await,
            Self::TellVerdict(id, verdict) => moves::tell(guests, key, id, verdict).await,
            Self::Tell { warning, reason, message } => {
                let note = if warning { Note::warning(reason, message) } else { Note::normal(reason, message) };
                if let Some(vmi) = guests.vmis.get_key(key)
                    && let Err(error) = guests.recorder.record(&reference(&*vmi), &note).await
                {
                    // An event is a courtesy; the status says the same.
                    tracing::warn!(error = error.message(), "cannot write an event");
                }
                Ok(())
            }
        }
    }
}

async fn start(guests: &Guests, key: &ObjectKey) -> Result<(), Failure> {
    let gone = || Failure::new(Category::NotFound, "start the guest", "the object or its pod is gone");
    // It may have waited for its turn, and not be wanted any more.
    let is_wanted = |vmi: &Arc<VirtualMachineInstance>| vmi.metadata.deletion_timestamp.is_none();
    let vmi = guests.vmis.get_key(key).filter(is_wanted).ok_or_else(gone)?;
    let pod = guests.pod_of(&vmi).filter(|pod| World::is_recorded(&vmi, pod)).ok_or_else(gone)?;
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let launcher = guests.followers.get(&uid).launcher.ok_or_else(gone)?;
    let links = guests.wiring.links(&vmi, &pod, &*launcher).await.map_err(wiring_failed)?;
    prepare_host_disks(&vmi, launcher.process()).await?;
    let claims = crate::claims::of(&vmi);
    give(&vmi, &pod, &claims, launcher.process()).await?;
    container_disks::mount(&vmi, &pod, &*launcher).await.map_err(image_missing)?;
    let hopeless = |error: ferrovirt_domain::Unsupported| Failure::new(Category::Hopeless, "start the guest", error);
    let facts = devices::facts(&guests.facts, &pod, claims);
    let domain = ferrovirt_domain::domain(&vmi, &facts, &links).map_err(hopeless)?;
    let disks = ferrovirt_domain::disk_tasks(&vmi, &facts, &links).map_err(hopeless)?;
    let request = StartRequest {
        uid: vmi.metadata.uid.clone().unwrap_or_default(),
        name: format!("{}_{}", key.namespace(), key.name()),
        domain_xml: domain.to_xml(),
        disks,
        dhcp: links.into_iter().filter_map(|link| link.dhcp).collect(),
        paused: vmi.spec.start_strategy.is_some(),
    };
    let report = launcher.start(request).await.map_err(|error| launcher_failed("start the guest", error))?;
    guests.followers.note(&uid, report);
    Ok(())
}

pub(crate) fn image_missing(error: ContainerDiskError) -> Failure {
    let category = if error.is_early() { Category::Unavailable } else { Category::Internal };
    Failure::new(category, "give the launcher its images", error)
}

pub(crate) fn wiring_failed(error: WiringError) -> Failure {
    let category = if error.is_hopeless() { Category::Hopeless } else { Category::Internal };
    Failure::new(category, "set up the guest's network", error)
}

async fn prepare_host_disks(
    vmi: &Arc<VirtualMachineInstance>,
    launcher: Option<&Arc<PodProcess>>,
) -> Result<(), Failure> {
    const WHAT: &str = "prepare the host disks";
    let is_needed = vmi.spec.volumes.iter().any(|volume| volume.host_disk.is_some());
    let Some(launcher) = launcher.filter(|_| is_needed) else { return Ok(()) };
    let vmi = vmi.clone();
    let prepared = launcher.with_root(move |root| host_disks::prepare(&vmi, root)).await;
    let prepared = prepared.map_err(|error| Failure::new(Category::Internal, WHAT, error))?;
    prepared.map_err(|error| Failure::new(Category::Internal, WHAT, error))
}

/// Lets the launcher use the devices and claims of its pod.
pub(crate) async fn give(
    vmi: &Arc<VirtualMachineInstance>,
    pod: &Arc<Pod>,
    claims: &Claims,
    launcher: Option<&Arc<PodProcess>>,
) -> Result<(), Failure> {
    const WHAT: &str = "give the launcher its devices and volumes";
    // Only a simulation's launcher has no process.
    let Some(launcher) = launcher else { return Ok(()) };
    let (vmi, pod, claims) = (vmi.clone(), pod.clone(), claims.clone());
    let given = launcher.with_root(move |root| {
        volumes::give(&vmi, &claims, root);
        devices::give(&pod, &devices::of_claims(&vmi, &claims), root)
    });
    let given = given.await.map_err(|error| Failure::new(Category::Internal, WHAT, error))?;
    given.map_err(|error| Failure::new(Category::Internal, WHAT, error))
}

async fn command(guests: &Guests, key: &ObjectKey, command: Command) -> Result<(), Failure> {
    let Some(pod) = guests.vmis.get_key(key).and_then(|vmi| guests.pod_of(&vmi)) else { return Ok(()) };
    let launcher = guests.followers.get(pod.metadata.uid.as_deref().unwrap_or_default()).launcher;
    let Some(launcher) = launcher else { return Ok(()) };
    let what = format!("{} the guest", command.path());
    match launcher.command(command).await {
        // Gone or over in the meantime, which is what was wanted; if not, the next report says so.
        Ok(()) | Err(LauncherError::Unreachable(_) | LauncherError::Refused(_)) => Ok(()),
        Err(error) => Err(launcher_failed(&what, error)),
    }
}

pub(crate) fn launcher_failed(what: &str, error: LauncherError) -> Failure {
    let category = match &error {
        LauncherError::Refused(_) => Category::Hopeless,
        LauncherError::Unreachable(_) | LauncherError::Timeout(_) => Category::Unavailable,
        LauncherError::Failed(_) | LauncherError::Protocol(_) => Category::Internal,
    };
    Failure::new(category, what, error)
}
