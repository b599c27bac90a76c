//! A move of the guest to another node: what keeps it from beginning, from getting on, or from ending. The guest runs meanwhile, so
//! whatever is wrong with the guest itself is said first.

use ferrovirt_api::vmi::MigrationProgress;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};
use serde_json::Value;

use super::object::{condition, list, name, text, time};
use super::snapshot::Snapshot;
use super::verdict::Finding;
use super::{node, pod};
use crate::time::human;

/// What follows by itself follows within moments.
const MOMENT: i64 = 15;
/// Getting the target ready takes the start of a pod's libvirt.
const PREPARATION: i64 = 60;
/// Moves at once, in the cluster and from one node, when nothing else is configured.
const LIMITS: (u64, u64) = (5, 2);
/// Seconds for each GiB, when nothing else is configured.
const SECONDS_PER_GIB: i64 = 150;
/// How long a move may overrun its time before that is strange by itself.
const GRACE: i64 = 60;

/// What keeps the newest move from its end.
pub(super) fn blocker(seen: &Snapshot, vmi: &Value) -> Option<Finding> {
    let Some(migration) = active(seen) else { return evacuation(seen, vmi) };
    let at = Move::new(seen, vmi, migration);
    match text(migration, "/status/phase").unwrap_or("Pending") {
        "Pending" => at.pending(),
        "Scheduling" => at.scheduling(),
        "Scheduled" => at.unsettled().or_else(|| {
            at.after(MOMENT, "NotHandedOff", "its target pod runs, and the nodes were not told to move it", CONTROLLER)
        }),
        "PreparingTarget" => at.preparing(),
        "TargetReady" => at.ready(),
        "Running" => at.running(),
        _ => None,
    }
}

const CONTROLLER: &str = "virt-controller does that: is it running? \"ferrovirt status\", or \"kubectl get pods -n kubevirt\"; its log says more";

/// What does not block, but may matter.
pub(super) fn notes(seen: &Snapshot, vmi: &Value) -> Vec<String> {
    let mut notes = Vec::new();
    let state = &vmi["status"]["migrationState"];
    let target = text(state, "/targetNode").unwrap_or("another node");
    if text(state, "/startTimestamp").is_some() && text(state, "/endTimestamp").is_none() {
        let percent = state.pointer("/progress/percent").and_then(Value::as_u64);
        let percent = percent.map(|percent| format!(", {percent}% done")).unwrap_or_default();
        notes.push(format!("it is being moved to {target}{percent}"));
    } else if let Some(migration) = active(seen) {
        let phase = text(migration, "/status/phase").unwrap_or("Pending");
        notes.push(format!("it is about to move ({} is {phase})", name(migration)));
    }
    if let Some(failed) = seen.migrations.first().filter(|newest| newest["status"]["phase"] == "Failed") {
        let when = text(failed, "/status/migrationState/endTimestamp").and_then(|end| end.parse().ok());
        let when = when.map(|end| format!(", {} ago,", human(seen.seconds_since(end)))).unwrap_or_default();
        notes.push(format!("its last move{when} failed: {}", reason(seen, failed)));
    }
    if let Some(told) = condition(vmi, "LiveMigratable").filter(|told| told.is_false()) {
        let words = told.words().map(|words| format!(": {words}")).unwrap_or_default();
        notes.push(format!("it cannot be moved to another node{words}"));
    }
    notes.extend(budget(seen, vmi));
    notes
}

/// A drain of its node waits for ever: its pod may not be evicted, and it is not moved instead.
fn budget(seen: &Snapshot, vmi: &Value) -> Option<String> {
    let is_drained = seen.node.as_ref().is_some_and(|node| node["spec"]["unschedulable"] == true);
    let is_moved = matches!(text(vmi, "/spec/evictionStrategy"), Some(strategy) if strategy != "None");
    let guards = |budget: &&Value| {
        let selector = serde_json::from_value::<LabelSelector>(budget["spec"]["selector"].clone()).ok();
        let selector = selector.and_then(|selector| Selector::try_from(selector).ok());
        let labels = seen.pod().and_then(|pod| serde_json::from_value(pod["metadata"]["labels"].clone()).ok());
        budget.pointer("/status/disruptionsAllowed").and_then(Value::as_i64) == Some(0)
            && selector.zip(labels).is_some_and(|(selector, labels)| selector.matches(&labels))
    };
    let budget = seen.budgets.iter().find(guards).filter(|_| is_drained && !is_moved)?;
    Some(format!(
        "whoever empties its node waits: PodDisruptionBudget {} allows no eviction of its pod, and its evictionStrategy does not let it move \
         instead (LiveMigrate does)",
        name(budget)
    ))
}

/// The newest move that is not over.
fn active(seen: &Snapshot) -> Option<&Value> {
    let is_over = |migration: &&Value| matches!(text(migration, "/status/phase"), Some("Succeeded" | "Failed"));
    seen.migrations.iter().find(|migration| !is_over(migration))
}

/// Why a move failed, in the words of whoever ended it.
fn reason(seen: &Snapshot, migration: &Value) -> String {
    let told = text(migration, "/status/migrationState/failureReason").map(str::to_owned);
    let told = told.or_else(|| seen.warning_words("VirtualMachineInstanceMigration", name(migration), &[]));
    told.unwrap_or_else(|| "no reason is given".to_owned())
}

/// One move that is on its way.
struct Move<'a> {
    seen: &'a Snapshot,
    vmi: &'a Value,
    migration: &'a Value,
    /// What the guest's object says about it; null before the nodes were told.
    state: &'a Value,
}

impl<'a> Move<'a> {
    fn new(seen: &'a Snapshot, vmi: &'a Value, migration: &'a Value) -> Self {
        let state = &vmi["status"]["migrationState"];
        let is_about_it = state["migrationUid"].is_string() && state["migrationUid"] == migration["metadata"]["uid"];
        Self { seen, vmi, migration, state: if is_about_it { state } else { &Value::Null } }
    }

    fn object(&self) -> String {
        format!("VirtualMachineInstanceMigration {}/{}", self.seen.namespace, name(self.migration))
    }

    fn finding(&self, reason: &'static str, what: impl Into<String>, fix: impl Into<String>) -> Option<Finding> {
        Some(Finding::new(self.object(), reason, what, fix))
    }

    /// Seconds in the present phase.
    fn age(&self) -> i64 {
        let phase = text(self.migration, "/status/phase");
        let entered = list(self.migration, "/status/phaseTransitionTimestamps")
            .filter(|entry| text(entry, "/phase") == phase)
            .filter_map(|entry| time(entry, "/phaseTransitionTimestamp"))
            .last();
        let entered = entered.or_else(|| time(self.migration, "/metadata/creationTimestamp"));
        entered.map_or(0, |at| self.seen.seconds_since(at))
    }

    /// Something that should have followed by itself.
    fn after(&self, seconds: i64, reason: &'static str, what: &str, fix: &str) -> Option<Finding> {
        let age = self.age();
        if age < seconds {
            return None;
        }
        self.finding(reason, format!("{what}, since {}", human(age)), fix)
    }

    fn pending(&self) -> Option<Finding> {
        let known = self.blocked().or_else(|| self.second()).or_else(|| self.unready()).or_else(|| self.queued());
        known.or_else(|| self.backing_off()).or_else(|| {
            self.after(MOMENT, "MigrationNotBegun", "it shall move, and nothing has been done for it", CONTROLLER)
        })
    }

    /// Conditions of the migration that say why it waits.
    fn blocked(&self) -> Option<Finding> {
        let known = [
            (
                "migrationRejectedByResourceQuota",
                "QuotaExceeded",
                "its target pod does not fit into the quota of the namespace",
                "free something in the namespace, or have its ResourceQuota raised: while a guest moves it has two pods",
            ),
            (
                "migrationBlockedByUtilityVolumes",
                "UtilityVolumes",
                "utility volumes are plugged in, and it moves without them only",
                "unplug them: virtctl removevolume",
            ),
            ("migrationBlockedByBackup", "Backup", "a backup of it is being made", "wait for the backup"),
        ];
        let told = |kind: &str| condition(self.migration, kind).filter(|told| told.is_true());
        let (told, (_, reason, what, fix)) =
            known.iter().find_map(|entry| told(entry.0).map(|condition| (condition, entry)))?;
        self.finding(reason, *what, *fix).map(|finding| finding.says(told.words()))
    }

    /// An older move of the same guest has to end first.
    fn second(&self) -> Option<Finding> {
        let is_over = |migration: &&Value| matches!(text(migration, "/status/phase"), Some("Succeeded" | "Failed"));
        let older = self.seen.migrations.iter().filter(|other| name(other) != name(self.migration));
        let older = older.rev().find(|migration| !is_over(migration))?;
        let what = format!("another move of it is not over: {}", name(older));
        self.finding(
            "AnotherMigration",
            what,
            format!("wait for it, or cancel it: virtctl migrate-cancel {}", self.seen.name),
        )
    }

    /// Its node has to say something first.
    fn unready(&self) -> Option<Finding> {
        let node = self.source();
        if condition(self.vmi, "LiveMigratable").is_none() {
            let what = "it shall move, and its node has not said whether it can";
            let fix = format!("virt-handler says it soon after the guest runs; its log on {node} tells what keeps it");
            return self.after(MOMENT, "NotJudged", what, &fix);
        }
        self.unsettled()
    }

    /// The record of the move before is not closed: it gives way to the next one only when everybody knows where the guest is.
    fn unsettled(&self) -> Option<Finding> {
        let record = &self.vmi["status"]["migrationState"];
        let is_its_own = record["migrationUid"] == self.migration["metadata"]["uid"];
        let is_moved = record["completed"] == true || record["targetNode"] == self.vmi["status"]["nodeName"];
        if text(record, "/migrationUid").is_none() || is_its_own || is_moved || record["sourceMayResume"] == true {
            return None;
        }
        let node = text(record, "/sourceNode").unwrap_or_else(|| self.source());
        if record["failed"] == true {
            let what = format!(
                "it shall move, and node {node} has not said since its last move, which failed, that it goes on there"
            );
            let fix = format!("virt-handler on {node} says that as soon as it can: is it running? Its log tells more");
            let finding = self.after(MOMENT, "EarlierMoveUnsettled", &what, &fix)?;
            return Some(finding.says(text(record, "/failureReason").map(str::to_owned)));
        }
        let what = "it shall move, and its nodes have not ended the move before";
        let fix = format!("virt-handler's logs on {node} and the node that it was to move to tell what they wait for");
        let finding = self.after(MOMENT, "EarlierMove", what, &fix)?;
        Some(finding.says(text(record, "/progress/message").map(str::to_owned)))
    }

    /// Every slot is taken.
    fn queued(&self) -> Option<Finding> {
        let moving: Vec<_> = self.seen.moving.iter().filter(|other| other.uid != uid(self.migration)).collect();
        let limit = |field: &str, fallback: u64| {
            self.seen.settings.as_ref().and_then(|settings| settings[field].as_u64()).unwrap_or(fallback)
        };
        let (of_cluster, of_node) =
            (limit("parallelMigrationsPerCluster", LIMITS.0), limit("parallelOutboundMigrationsPerNode", LIMITS.1));
        let here = text(self.vmi, "/status/nodeName").unwrap_or_default();
        let from_here: Vec<_> = moving.iter().filter(|other| other.node == here).copied().collect();
        let shown = |all: &[&super::snapshot::Moving]| {
            all.iter().map(|other| format!("{} from {}", other.guest, other.node)).collect::<Vec<_>>().join(", ")
        };
        if moving.len() as u64 >= of_cluster {
            let what = format!("it waits for its turn: no more than {of_cluster} may move at once in the cluster");
            let fix = "wait; or raise parallelMigrationsPerCluster in the KubeVirt object's configuration.migrations";
            return self
                .finding("MigrationQueued", what, fix)
                .map(|found| found.says(Some(format!("moving: {}", shown(&moving)))));
        }
        if from_here.len() as u64 >= of_node {
            let what = format!("it waits for its turn: no more than {of_node} may leave node {here} at once");
            let fix =
                "wait; or raise parallelOutboundMigrationsPerNode in the KubeVirt object's configuration.migrations";
            return self
                .finding("MigrationQueued", what, fix)
                .map(|found| found.says(Some(format!("moving: {}", shown(&from_here)))));
        }
        None
    }

    /// The moves before it failed, and they are not begun one after the other.
    fn backing_off(&self) -> Option<Finding> {
        let about =
            [("VirtualMachineInstanceMigration", name(self.migration)), ("VirtualMachineInstance", name(self.vmi))];
        let words = about.iter().find_map(|(kind, name)| self.seen.warning_words(kind, name, &["MigrationBackoff"]))?;
        let last = self.seen.migrations.iter().find(|migration| migration["status"]["phase"] == "Failed");
        let last = last.map(|failed| reason(self.seen, failed)).unwrap_or_default();
        let what = "its last moves failed, so the next one waits, twice as long after every failure";
        let fix = match last.as_str() {
            "" => "repair what made the last one fail".to_owned(),
            last => format!("repair what made the last one fail: {last}"),
        };
        self.finding("MigrationBackoff", what, fix).map(|finding| finding.says(Some(words)))
    }

    fn scheduling(&self) -> Option<Finding> {
        let Some(pod) = self.target_pod() else {
            return self.after(MOMENT, "TargetPodMissing", "its target pod is not there", CONTROLLER);
        };
        let mut finding = pod::trouble(self.seen, pod)?;
        finding.what = format!("it cannot move yet, because of its target pod: {}", finding.what);
        let limit = if finding.reason == "Unschedulable" { 300 } else { 900 };
        let since = time(pod, "/metadata/creationTimestamp").map_or(0, |made| self.seen.seconds_since(made));
        finding.fix = format!(
            "{}; the guest runs on where it is, and the move is given up in {}",
            finding.fix,
            human(limit - since)
        );
        Some(finding)
    }

    fn target_pod(&self) -> Option<&'a Value> {
        let is_its = |pod: &&Value| {
            text(pod, "/metadata/labels/kubevirt.io~1migrationJobUID") == text(self.migration, "/metadata/uid")
        };
        self.seen.pods.iter().find(is_its)
    }

    fn target_trouble(&self) -> Option<Finding> {
        let trouble = self.seen.target_node.as_ref().and_then(|node| node::trouble(self.seen, node))?;
        Some(Finding {
            what: format!("it moves to a node in trouble: {}", trouble.what.replace("its node", "that node")),
            ..trouble
        })
    }

    fn preparing(&self) -> Option<Finding> {
        self.target_trouble().or_else(|| self.calling_off()).or_else(|| {
            let target = text(self.state, "/targetNode").unwrap_or("the target");
            let what = format!("node {target} gets ready for it, which should not take long");
            let fix = format!(
                "virt-handler's log on {target} says what it waits for; \"virtctl migrate-cancel {}\" calls the move off",
                self.seen.name
            );
            let finding = self.after(PREPARATION, "TargetNotReady", &what, &fix)?;
            Some(finding.says(self.seen.warning_words("VirtualMachineInstance", name(self.vmi), &[])))
        })
    }

    fn ready(&self) -> Option<Finding> {
        self.target_trouble().or_else(|| self.calling_off()).or_else(|| {
            let (source, target) = (self.source(), text(self.state, "/targetNode").unwrap_or("the target"));
            let address = text(self.state, "/targetNodeAddress").unwrap_or("no address");
            let what = format!("node {target} waits for it at {address}, and node {source} does not begin to send");
            let fix = format!("virt-handler's log on {source} says why: is it running, and can it reach {address}?");
            let finding = self.after(MOMENT, "SourceNotStarting", &what, &fix)?;
            Some(finding.says(self.seen.warning_words("VirtualMachineInstance", name(self.vmi), &[])))
        })
    }

    fn source(&self) -> &'a str {
        text(self.state, "/sourceNode").or_else(|| text(self.vmi, "/status/nodeName")).unwrap_or("the source")
    }

    fn running(&self) -> Option<Finding> {
        self.target_trouble()
            .or_else(|| self.in_doubt())
            .or_else(|| self.overdue())
            .or_else(|| self.calling_off())
            .or_else(|| self.not_converging())
    }

    /// Everything was sent, and the source does not hear how it ended.
    fn in_doubt(&self) -> Option<Finding> {
        let message = text(self.state, "/progress/message")?;
        if !message.starts_with(MigrationProgress::IN_DOUBT) {
            return None;
        }
        let (source, target) = (self.source(), text(self.state, "/targetNode").unwrap_or("the target"));
        let what = format!(
            "node {source} has sent it and does not hear from {target} whether it runs there; it stands still until one of them knows, \
             because it must never run twice"
        );
        let fix = format!(
            "let {source} and {target} reach each other, or one of their virt-handlers the API server: then it goes on by itself. If {target} is \
             dead for good, make sure that it is off and say so: kubectl taint node {target} \
             node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
        );
        self.finding("MigrationInDoubt", what, fix).map(|found| found.says(Some(message.to_owned())))
    }

    /// The time is long over, and the move neither ends nor is given up: whoever should do that is not heard.
    fn overdue(&self) -> Option<Finding> {
        let begun = time(self.state, "/startTimestamp").map(|at| self.seen.seconds_since(at))?;
        let total = self.state.pointer("/progress/totalBytes").and_then(Value::as_i64).unwrap_or(1 << 30);
        let per_gib = self.state.pointer("/migrationConfiguration/completionTimeoutPerGiB").and_then(Value::as_i64);
        let per_gib = per_gib.unwrap_or(SECONDS_PER_GIB);
        let allowed = per_gib * ((total + (1 << 30) - 1) >> 30).max(1);
        // One that is paused or finished at the target is given its time.
        let is_patient = per_gib == 0 || matches!(text(self.state, "/mode"), Some("PostCopy" | "Paused"));
        if is_patient || begun < allowed + GRACE {
            return None;
        }
        let source = self.source();
        let what = format!(
            "its move had {} and is neither over nor given up: node {source} says nothing about it",
            human(allowed)
        );
        let fix = format!(
            "virt-handler on {source} gives it up, or says what it waits for: is it running, and can it reach the API server? Its log tells \
             more. The guest is never run twice meanwhile"
        );
        self.finding("MigrationOverdue", what, fix)
    }

    fn calling_off(&self) -> Option<Finding> {
        let asked = time(self.migration, "/metadata/deletionTimestamp");
        let asked = asked.or_else(|| time(self.state, "/startTimestamp"));
        if self.state["abortRequested"] != true || asked.is_none_or(|at| self.seen.seconds_since(at) < PREPARATION) {
            return None;
        }
        let what = "it was asked to stay, and its node has not stopped the move";
        let fix = format!("virt-handler's log on {} says why; the guest is safe either way", self.source());
        self.finding("MigrationNotStopping", what, fix)
    }

    /// The launcher says that the move does not come nearer to its end.
    fn not_converging(&self) -> Option<Finding> {
        let note = text(self.state, "/progress/message")?;
        let allows =
            |field: &str| self.state.pointer(&format!("/migrationConfiguration/{field}")) == Some(&Value::Bool(true));
        let limit = text(self.state, "/migrationConfiguration/bandwidthPerMigration").unwrap_or("0");
        let is_limited = limit.chars().any(|digit| ('1'..='9').contains(&digit));
        let mut ways = Vec::new();
        if is_limited {
            ways.push("bandwidthPerMigration raised lets it send faster");
        }
        if !allows("allowAutoConverge") {
            ways.push("allowAutoConverge slows the guest down until it can be sent");
        }
        if !allows("allowPostCopy") {
            ways.push("allowPostCopy lets it run at the target before all is sent");
        }
        if !allows("allowWorkloadDisruption") {
            ways.push("allowWorkloadDisruption pauses it to get the rest sent");
        }
        let ways = match ways.is_empty() {
            true => "make the guest change less memory".to_owned(),
            false => {
                format!("make the guest change less memory, or allow more in a migration policy: {}", ways.join("; "))
            }
        };
        let what = "its memory changes too fast for the move to end";
        self.finding("MigrationStalled", what, ways).map(|finding| finding.says(Some(note.to_owned())))
    }
}

fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid").unwrap_or_default()
}

/// It should leave its node, and does not.
fn evacuation(seen: &Snapshot, vmi: &Value) -> Option<Finding> {
    let node = text(vmi, "/status/evacuationNodeName").filter(|node| text(vmi, "/status/nodeName") == Some(*node))?;
    let object = format!("VirtualMachineInstance {}/{}", seen.namespace, seen.name);
    let forget = format!("\"virtctl evacuate-cancel vmi {}\" lets it stay", seen.name);
    if let Some(told) = condition(vmi, "LiveMigratable").filter(|told| told.is_false()) {
        let what = format!("it should leave node {node}, which is being emptied, and it cannot be moved");
        let fix = format!("shut it down or restart it elsewhere, or remove what keeps it; {forget}");
        return Some(Finding::new(object, "EvacuationBlocked", what, fix).says(told.words()));
    }
    if text(vmi, "/spec/evictionStrategy") == Some("External") {
        let what =
            format!("it should leave node {node}, and somebody outside is to move it (evictionStrategy External)");
        let fix = format!("that somebody creates a migration, or you do: virtctl migrate {}; {forget}", seen.name);
        return Some(Finding::new(object, "EvacuationExternal", what, fix));
    }
    if let Some(failed) = seen.migrations.first().filter(|newest| newest["status"]["phase"] == "Failed") {
        let what = format!("it should leave node {node}, and its last move failed; the next one comes by itself");
        let fix = format!("repair what made it fail; {forget}");
        return Some(Finding::new(object, "EvacuationFailing", what, fix).says(Some(reason(seen, failed))));
    }
    let what = format!("it should leave node {node}, and no move of it was begun");
    Some(Finding::new(object, "EvacuationNotBegun", what, format!("{CONTROLLER}; {forget}")))
}
