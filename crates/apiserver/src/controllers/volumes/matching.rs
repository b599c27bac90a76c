//! Which volume a claim gets, and what both sides look like then. Pure functions over the objects.

use ferrovirt_api::values::Quantity;
use ferrovirt_machinery::selector::LabelSelector;
use serde_json::{Value, json};

use super::super::record::Note;

pub(super) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
pub(super) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
pub(super) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// What is known besides the claim.
pub(super) struct Around<'a> {
    /// Every volume.
    pub(super) volumes: &'a [Value],
    /// The claim's storage class, if it exists.
    pub(super) class: Option<&'a Value>,
    /// A pod uses the claim.
    pub(super) has_consumer: bool,
}

/// What becomes of a claim.
#[derive(Debug, PartialEq)]
pub(super) enum ClaimVerdict<'a> {
    /// It gets (or has) this volume.
    Bind(&'a Value),
    /// Its volume is gone.
    Lost(Note),
    /// It waits, and says why.
    Wait(Option<Note>),
    /// A volume is to be made for it.
    Provision {
        /// `provisioner` of its class.
        provisioner: &'a str,
    },
}

/// What becomes of a volume.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum VolumeVerdict {
    /// Anybody (or the claim that it names) may have it.
    Available,
    /// It belongs to its claim.
    Bound,
    /// Its claim is gone.
    Released,
    /// It was bound to a claim that took another volume.
    Unbind,
    /// Its claim is about to decide.
    AskClaim,
}

fn annotation<'v>(object: &'v Value, name: &str) -> Option<&'v str> {
    object["metadata"]["annotations"][name].as_str()
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The storage class of a claim or volume; empty for none.
pub(super) fn class_of(object: &Value) -> &str {
    annotation(object, BETA_CLASS).unwrap_or_else(|| text(object, "/spec/storageClassName"))
}

/// The volume names this claim, by name and (when it has one) by uid.
pub(super) fn belongs_to(volume: &Value, claim: &Value) -> bool {
    let owner = &volume["spec"]["claimRef"];
    let (mine, theirs) = (&claim["metadata"], text(owner, "/uid"));
    owner.is_object()
        && owner["name"] == mine["name"]
        && owner["namespace"] == mine["namespace"]
        && (theirs.is_empty() || mine["uid"] == theirs)
}

fn quantity(value: &Value) -> Quantity {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn capacity(volume: &Value) -> Quantity {
    quantity(&volume["spec"]["capacity"]["storage"])
}

fn request(claim: &Value) -> Quantity {
    quantity(&claim["spec"]["resources"]["requests"]["storage"])
}

fn mode(object: &Value) -> &str {
    object["spec"]["volumeMode"].as_str().unwrap_or("Filesystem")
}

fn modes(object: &Value) -> &[Value] {
    object["spec"]["accessModes"].as_array().map_or(&[], Vec::as_slice)
}

/// Why a volume that a claim asks for by name does not do, in the words that an event shows.
fn unfit(volume: &Value, claim: &Value) -> Option<&'static str> {
    if capacity(volume) < request(claim) {
        return Some("requested PV is too small");
    }
    if class_of(volume) != class_of(claim) {
        return Some("storageClassName does not match");
    }
    if mode(volume) != mode(claim) {
        return Some("incompatible volumeMode");
    }
    if !modes(claim).iter().all(|wanted| modes(volume).contains(wanted)) {
        return Some("incompatible accessMode");
    }
    None
}

/// The volume that is reserved for the claim, or else the one that fits with the fewest modes and the least space.
fn best<'a>(claim: &Value, volumes: &'a [Value]) -> Option<&'a Value> {
    let selector = match &claim["spec"]["selector"] {
        Value::Null => LabelSelector::everything(),
        selector => LabelSelector::from_object(selector).ok()?,
    };
    let usable = |volume: &&Value| {
        !volume["metadata"]["deletionTimestamp"].is_string()
            && capacity(volume) >= request(claim)
            && mode(volume) == mode(claim)
            && text(volume, "/spec/volumeAttributesClassName") == text(claim, "/spec/volumeAttributesClassName")
    };
    if let Some(reserved) = volumes.iter().find(|volume| usable(volume) && belongs_to(volume, claim)) {
        return Some(reserved);
    }
    volumes
        .iter()
        .filter(usable)
        .filter(|volume| volume["spec"]["claimRef"].is_null() && volume["status"]["phase"] == "Available")
        .filter(|volume| selector.matches_object(volume) && unfit(volume, claim).is_none())
        .min_by_key(|volume| (modes(volume).len(), capacity(volume), text(volume, "/metadata/name")))
}

/// What becomes of a claim now.
pub(super) fn judge_claim<'a>(claim: &'a Value, around: &Around<'a>) -> ClaimVerdict<'a> {
    let named = text(claim, "/spec/volumeName");
    let volume = around.volumes.iter().find(|volume| text(volume, "/metadata/name") == named);
    if annotation(claim, BIND_COMPLETED).is_some() {
        return judge_bound(claim, named, volume);
    }
    if named.is_empty() {
        return judge_unbound(claim, around);
    }
    match volume {
        None => ClaimVerdict::Wait(None),
        Some(volume) if volume["spec"]["claimRef"].is_null() => match unfit(volume, claim) {
            None => ClaimVerdict::Bind(volume),
            Some(why) => {
                let message = format!("Cannot bind to requested volume \"{named}\": {why}");
                ClaimVerdict::Wait(Some(Note::warning("VolumeMismatch", message)))
            }
        },
        Some(volume) if belongs_to(volume, claim) => ClaimVerdict::Bind(volume),
        Some(_) => {
            let message = format!("volume \"{named}\" already bound to a different claim.");
            ClaimVerdict::Wait(Some(Note::warning("FailedBinding", message)))
        }
    }
}

fn judge_bound<'a>(claim: &Value, named: &str, volume: Option<&'a Value>) -> ClaimVerdict<'a> {
    let lost = |reason, message| ClaimVerdict::Lost(Note::warning(reason, message));
    match volume {
        _ if named.is_empty() => {
            lost("ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
        }
        None => lost("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!"),
        Some(volume) if volume["spec"]["claimRef"].is_null() || belongs_to(volume, claim) => ClaimVerdict::Bind(volume),
        Some(_) => lost("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly"),
    }
}

fn judge_unbound<'a>(claim: &'a Value, around: &Around<'a>) -> ClaimVerdict<'a> {
    let wait = |note| ClaimVerdict::Wait(Some(note));
    let delayed = around.class.is_some_and(|class| class["volumeBindingMode"] == "WaitForFirstConsumer");
    let consumed = around.has_consumer || annotation(claim, SELECTED_NODE).is_some();
    if delayed && !consumed {
        return match around.volumes.iter().find(|volume| belongs_to(volume, claim)) {
            Some(reserved) => ClaimVerdict::Bind(reserved),
            None => {
                wait(Note::normal("WaitForFirstConsumer", "waiting for first consumer to be created before binding"))
            }
        };
    }
    if let Some(volume) = best(claim, around.volumes) {
        return ClaimVerdict::Bind(volume);
    }
    let name = class_of(claim);
    if name.is_empty() {
        let message = "no persistent volumes available for this claim and no storage class is set";
        return wait(Note::normal("FailedBinding", message));
    }
    let Some(class) = around.class else {
        let message = format!("storageclass.storage.k8s.io \"{name}\" not found");
        return wait(Note::warning("ProvisioningFailed", message));
    };
    match text(class, "/provisioner") {
        builtin if builtin.starts_with("kubernetes.io/") => {
            wait(Note::warning("ProvisioningFailed", format!("no volume plugin matched name: {builtin}")))
        }
        provisioner => ClaimVerdict::Provision { provisioner },
    }
}

/// What becomes of a volume now; `claim` is the stored claim that it names, whatever its uid.
pub(super) fn judge_volume(volume: &Value, claim: Option<&Value>) -> VolumeVerdict {
    let owner = &volume["spec"]["claimRef"];
    if owner.is_null() {
        return VolumeVerdict::Available;
    }
    if text(owner, "/uid").is_empty() {
        // Reserved by its maker; the claim takes it when it comes.
        return if claim.is_some() { VolumeVerdict::AskClaim } else { VolumeVerdict::Available };
    }
    match claim.filter(|claim| belongs_to(volume, claim)) {
        None => VolumeVerdict::Released,
        Some(claim) if text(claim, "/spec/volumeName").is_empty() => VolumeVerdict::AskClaim,
        Some(claim) if claim["spec"]["volumeName"] == volume["metadata"]["name"] => VolumeVerdict::Bound,
        Some(_) => VolumeVerdict::Unbind,
    }
}

/// Writes the claim into the volume.
pub(super) fn take_volume(volume: &mut Value, claim: &Value) {
    if !belongs_to(volume, claim) {
        volume["metadata"]["annotations"][BOUND_BY_CONTROLLER] = "yes".into();
    }
    let metadata = &claim["metadata"];
    if volume["spec"]["claimRef"]["uid"] != metadata["uid"] {
        volume["spec"]["claimRef"] = json!({
            "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": metadata["namespace"],
            "name": metadata["name"], "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"],
        });
    }
}

/// Writes the volume into the claim.
pub(super) fn take_claim(claim: &mut Value, volume: &Value) {
    let annotations = &mut claim["metadata"]["annotations"];
    annotations[BIND_COMPLETED] = "yes".into();
    if claim["spec"]["volumeName"] != volume["metadata"]["name"] {
        claim["metadata"]["annotations"][BOUND_BY_CONTROLLER] = "yes".into();
        claim["spec"]["volumeName"] = volume["metadata"]["name"].clone();
    }
}

/// The status of a claim that has this volume. A size that a resize has left there stays.
pub(super) fn show_bound(claim: &mut Value, volume: &Value) {
    let status = &mut claim["status"];
    if status["phase"] != "Bound" || status["capacity"].is_null() {
        status["capacity"] = json!({"storage": volume["spec"]["capacity"]["storage"]});
    }
    status["phase"] = "Bound".into();
    status["accessModes"] = volume["spec"]["accessModes"].clone();
}

/// Takes the claim out of a volume; a reservation that a user made keeps its name.
pub(super) fn let_go(volume: &mut Value) {
    let by_us = annotation(volume, BOUND_BY_CONTROLLER).is_some();
    let field = if by_us { "claimRef" } else { "uid" };
    let holder = if by_us { &mut volume["spec"] } else { &mut volume["spec"]["claimRef"] };
    if let Value::Object(holder) = holder {
        holder.remove(field);
    }
    if let Value::Object(annotations) = &mut volume["metadata"]["annotations"] {
        annotations.remove(BOUND_BY_CONTROLLER);
    }
}

/// The names of the claims that a pod uses.
pub(super) fn claims_of(pod: &Value) -> Vec<String> {
    let name = text(pod, "/metadata/name");
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes
        .filter_map(|volume| match &volume["ephemeral"] {
            Value::Object(_) => Some(format!("{name}-{}", text(volume, "/name"))),
            _ => volume["persistentVolumeClaim"]["claimName"].as_str().map(str::to_owned),
        })
        .collect()
}

/// A pod that waits for the claim, or runs with it.
pub(super) fn consumes(pod: &Value, claim: &str) -> bool {
    !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed") && claims_of(pod).iter().any(|name| name == claim)
}

/// A pod that keeps the claim from going away: only once it has a node, as nodes start no pod with a claim that is
/// being deleted, and until it is gone, as a finished pod may still have the volume mounted.
pub(super) fn holds(pod: &Value, claim: &str) -> bool {
    !text(pod, "/spec/nodeName").is_empty() && claims_of(pod).iter().any(|name| name == claim)
}

#[cfg(test)]
#[path = "matching_tests.rs"]
mod tests;
