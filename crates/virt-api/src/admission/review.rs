//! The judgement of one write: defaults, causes, warnings. Pure, and independent of who asks: the plugin of the embedded API server
//! and the webhooks on Kubernetes build the same [`Request`] and the same [`Facts`] and get the same answer.
//!
//! ```text
//!             ┌ needs() ──► what to look up first (a guest, the installations, the workloads)
//!  Request ───┤
//!             ├ mutate()   ──► the object with its defaults        mutating webhook, Plugin::mutate
//!  Facts   ───┼ validate() ──► warnings, or a Refusal              validating webhook, Plugin::validate
//!             └ review()   ──► both at once, with one decode and one encode
//! ```

use std::collections::BTreeMap;

use ferrovirt_api::defaults::Inputs;
use ferrovirt_api::kubevirt::Configuration;
use ferrovirt_api::names::groups;
use ferrovirt_api::validation::{self, Cause};
use ferrovirt_api::{DecodeError, FromJson, VirtualMachineInstance, VirtualMachineInstanceMigration, decode};
use serde::Serialize;
use serde_json::{Value, json};

use super::{guest, installation, machine, migration, policy};

/// The kinds that are judged here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `VirtualMachine`
    Machine,
    /// `VirtualMachineInstance`
    Guest,
    /// `VirtualMachineInstanceMigration`
    Migration,
    /// `KubeVirt`
    Installation,
    /// `MigrationPolicy`
    MigrationPolicy,
}

impl Kind {
    /// Each kind with its group, plural and name.
    pub const ALL: [(Self, &'static str, &'static str, &'static str); 5] = [
        (Self::Machine, groups::KUBEVIRT, "virtualmachines", "VirtualMachine"),
        (Self::Guest, groups::KUBEVIRT, "virtualmachineinstances", "VirtualMachineInstance"),
        (Self::Migration, groups::KUBEVIRT, "virtualmachineinstancemigrations", "VirtualMachineInstanceMigration"),
        (Self::Installation, groups::KUBEVIRT, "kubevirts", "KubeVirt"),
        (Self::MigrationPolicy, groups::MIGRATIONS, "migrationpolicies", "MigrationPolicy"),
    ];

    /// The kind of a resource, if it is one of ours.
    #[must_use]
    pub fn of(group: &str, plural: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(_, its_group, its_plural, _)| *its_group == group && *its_plural == plural);
        found.map(|(kind, ..)| *kind)
    }

    /// Its group.
    #[must_use]
    pub fn group(self) -> &'static str {
        Self::ALL.iter().find(|(kind, ..)| *kind == self).map_or("", |(_, group, ..)| group)
    }

    /// Its name, such as `VirtualMachine`.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(kind, ..)| *kind == self).map_or("", |(.., name)| name)
    }
}

/// What is about to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A new object.
    Create,
    /// A changed object.
    Update,
    /// A deletion.
    Delete,
}

/// Who writes.
#[derive(Debug, Clone, Copy)]
pub struct User<'a> {
    /// The authenticated name.
    pub name: &'a str,
    /// The authenticated groups.
    pub groups: &'a [String],
    /// What the authenticator knows beyond that.
    pub extra: &'a BTreeMap<String, Vec<String>>,
    /// The namespace that the components are installed in, with their accounts.
    pub installation: &'a str,
}

/// One write.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// What kind of object.
    pub kind: Kind,
    /// Its subresource, or empty.
    pub subresource: &'a str,
    /// What happens to it.
    pub operation: Operation,
    /// Its namespace, empty for kinds without one.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The new state; `null` for deletions.
    pub object: &'a Value,
    /// The stored state; `null` for creations.
    pub old_object: &'a Value,
    /// Who does it.
    pub user: User<'a>,
}

/// What has to be looked up before a write can be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs<'a> {
    /// Nothing: the object says it all.
    Nothing,
    /// The guest of that name and its migrations: [`Others::guest`], [`Others::migrations`].
    Guest {
        /// Its namespace.
        namespace: &'a str,
        /// Its name.
        name: &'a str,
    },
    /// The names of all `KubeVirt` objects: [`Others::installations`].
    Installations,
    /// How many machines, guests and replica sets there are: [`Others::workloads`].
    Workloads,
    /// Whether any node could run a guest on its processor: [`Others::lacks_kvm`].
    Nodes,
}

/// What is known about other objects, as far as [`needs`] asked for it.
#[derive(Debug, Clone, Default)]
pub struct Others {
    /// The guest.
    pub guest: Option<VirtualMachineInstance>,
    /// Migrations of the guest, finished or not.
    pub migrations: Vec<VirtualMachineInstanceMigration>,
    /// `namespace/name` of the `KubeVirt` objects.
    pub installations: Vec<String>,
    /// Machines, guests and replica sets.
    pub workloads: usize,
    /// There are nodes, and none has KVM, as far as anybody knows.
    pub lacks_kvm: bool,
}

/// What a judgement depends on besides the write.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    /// The cluster's configuration.
    pub cluster: &'a Configuration,
    /// Time, chance and the cluster's architecture.
    pub inputs: Inputs,
    /// Other objects.
    pub others: Others,
}

/// A write that is let through.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Admission {
    /// The object as it shall be stored, when that is not what was sent.
    pub object: Option<Value>,
    /// Advice for the client.
    pub warnings: Vec<String>,
}

/// A write that is not let through.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// The HTTP code.
    pub code: u16,
    /// The reason of the `Status`, such as `Invalid`.
    pub reason: &'static str,
    /// All of it in one sentence.
    pub message: String,
    /// Each thing that is wrong.
    pub causes: Vec<Cause>,
}

impl Refusal {
    /// 422 with the causes of one object.
    pub(super) fn invalid(request: &Request<'_>, causes: Vec<Cause>) -> Self {
        let Request { kind, name, .. } = request;
        let subject = format!("{}.{} \"{name}\"", kind.name(), kind.group());
        let message = format!("{subject} is invalid: {}", validation::summary(&causes));
        Self { code: 422, reason: "Invalid", message, causes }
    }

    /// 422 for an object that cannot be read.
    pub(super) fn unreadable(error: &DecodeError) -> Self {
        Self { code: 422, reason: "Invalid", message: error.to_string(), causes: Vec::new() }
    }

    /// 403 without causes.
    pub(super) fn forbidden(message: String) -> Self {
        Self { code: 403, reason: "Forbidden", message, causes: Vec::new() }
    }

    /// `details.causes` of the `Status`.
    #[must_use]
    pub fn causes_json(&self) -> Vec<Value> {
        let cause =
            |cause: &Cause| json!({"reason": cause.reason.as_str(), "message": cause.message, "field": cause.field});
        self.causes.iter().map(cause).collect()
    }

    /// The whole `Status`, as an `AdmissionReview` answers with it.
    #[must_use]
    pub fn status(&self, request: &Request<'_>) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "code": self.code, "reason": self.reason, "message": self.message,
        });
        if !self.causes.is_empty() {
            status["details"] = json!({
                "name": request.name, "group": request.kind.group(), "kind": request.kind.name(), "causes": self.causes_json(),
            });
        }
        status
    }
}

/// What has to be looked up to judge this write.
#[must_use]
pub fn needs<'a>(request: &Request<'a>) -> Needs<'a> {
    match (request.kind, request.operation) {
        (Kind::Machine, Operation::Create | Operation::Update) => machine::needs(request),
        (Kind::Guest, Operation::Create) => guest::needs(request),
        (Kind::Migration, Operation::Create) => migration::needs(request),
        (Kind::Installation, Operation::Create) => Needs::Installations,
        (Kind::Installation, Operation::Delete) => installation::needs(request),
        _ => Needs::Nothing,
    }
}

/// The object with its defaults; `None` when it is stored as it was sent. One that cannot be read is left to the schema, whose
/// refusal is more precise.
pub fn mutate(request: &Request<'_>, facts: &Facts<'_>) -> Result<Option<Value>, Refusal> {
    let steps = Steps { default: true, check: false };
    match judge(request, facts, steps) {
        Ok(admission) => Ok(admission.object),
        Err(Failure::Unreadable(_)) => Ok(None),
        Err(Failure::Refused(refusal)) => Err(refusal),
    }
}

/// The warnings for an object that has its defaults, or why it is refused.
pub fn validate(request: &Request<'_>, facts: &Facts<'_>) -> Result<Vec<String>, Refusal> {
    let steps = Steps { default: false, check: true };
    Ok(judge(request, facts, steps)?.warnings)
}

/// [`mutate`] and [`validate`] in one go.
pub fn review(request: &Request<'_>, facts: &Facts<'_>) -> Result<Admission, Refusal> {
    Ok(judge(request, facts, Steps { default: true, check: true })?)
}

/// Which halves of the judgement are wanted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Steps {
    pub(super) default: bool,
    pub(super) check: bool,
}

/// Why a write does not go on.
pub(super) enum Failure {
    Unreadable(DecodeError),
    Refused(Refusal),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unreadable(error) => Self::unreadable(&error),
            Failure::Refused(refusal) => refusal,
        }
    }
}

pub(super) type Judgement = Result<Admission, Failure>;

fn judge(request: &Request<'_>, facts: &Facts<'_>, steps: Steps) -> Judgement {
    match request.kind {
        Kind::Machine => machine::judge(request, facts, steps),
        Kind::Guest => guest::judge(request, facts, steps),
        Kind::Migration => migration::judge(request, facts, steps),
        Kind::Installation => installation::judge(request, facts, steps),
        Kind::MigrationPolicy => policy::judge(request, facts, steps),
    }
}

/// Reads a typed object.
pub(super) fn read<T: FromJson>(value: &Value) -> Result<T, Failure> {
    decode(value).map_err(Failure::Unreadable)
}

/// Writes a typed object in the version of the API that its author used.
pub(super) fn write(object: &impl Serialize, sent: &Value) -> Option<Value> {
    let mut value = serde_json::to_value(object).ok()?;
    if let Some(version) = sent.get("apiVersion") {
        value["apiVersion"] = version.clone();
    }
    Some(value)
}

/// Refuses when there is a cause to.
pub(super) fn none(request: &Request<'_>, causes: Vec<Cause>) -> Result<(), Refusal> {
    if causes.is_empty() { Ok(()) } else { Err(Refusal::invalid(request, causes)) }
}
