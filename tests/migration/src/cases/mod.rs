//! The cases: a table, and a file for each area.

mod ends;
mod evacuation;
mod hard;
mod limits;
mod moves;
mod network;
mod refusals;
mod storage;

use blackbox::suite;

use crate::stage::Stage;

type Case = suite::Case<Stage>;

/// `case!("area/name", function, "about")`, with `alone` at the end where nothing else may run.
macro_rules! case {
    ($name:literal, $run:path, $about:literal) => {
        Case::new($name, $about, $run)
    };
    ($name:literal, $run:path, $about:literal, alone) => {
        Case::new($name, $about, $run).alone()
    };
}

/// All cases.
pub(crate) fn all() -> Vec<Case> {
    vec![
        case!("moves/status", moves::status, "A move leaves nothing unsaid in the objects of guest and migration."),
        case!(
            "moves/idle",
            moves::idle,
            "A guest counts and writes across many moves there and back; nothing is lost."
        ),
        case!("moves/busy", moves::busy, "The same while it changes its memory all the time."),
        case!(
            "moves/paused",
            moves::paused,
            "A paused guest is paused after its move, and goes on when it is told to."
        ),
        case!("moves/virtctl", moves::virtctl, "virtctl moves a machine, shows how it goes, and says how it ended."),
        case!(
            "hard/post-copy",
            hard::post_copy,
            "A move that does not end runs on at the target where that is allowed."
        ),
        case!("hard/pause", hard::pause, "A move that does not end pauses the guest where that is allowed."),
        case!(
            "hard/timeout",
            hard::timeout,
            "A move that does not end is given up with a reason, and the guest goes on."
        ),
        case!("ends/abort", ends::abort, "A move that copies is called off: the guest stays, and can move again."),
        case!("ends/virtctl", ends::virtctl_cancel, "virtctl migrate-cancel ends a real move."),
        case!(
            "ends/unschedulable",
            ends::unschedulable,
            "A move without a node to go to is given up; the guest is untouched."
        ),
        case!("ends/deleted", ends::deleted, "A guest that is deleted while it moves goes, on both nodes."),
        case!("refusals/disk", refusals::disk, "A guest with a disk that cannot follow is not moved, and told why."),
        case!(
            "refusals/bridge",
            refusals::bridge,
            "A guest bridged to the pod network is not moved without its consent."
        ),
        case!("refusals/second", refusals::second, "A guest that moves is not moved a second time meanwhile."),
        case!("refusals/missing", refusals::missing, "A move of a guest that is not there is refused."),
        case!("policies/apply", hard::policy, "A policy's options are in the record, with its name."),
        case!(
            "network/masquerade",
            network::masquerade,
            "A moved guest is reached at its new pod's address, and renews its lease."
        ),
        case!("network/bridge", network::bridge, "A bridged guest that may move gets its new address by DHCP."),
        case!(
            "storage/ephemeral",
            storage::ephemeral,
            "Container disk, empty disk and seed are the same after a move."
        ),
        case!(
            "storage/claim",
            storage::claim,
            "A shared claim is written on by the moved guest, and whole for the next one."
        ),
        case!(
            "ends/pending",
            ends::pending,
            "A move that waits for its turn is cancelled, and leaves no trace.",
            alone
        ),
        case!("limits/twelve", limits::twelve, "Twelve guests move, five at once and two from a node.", alone),
        case!("limits/changed", limits::changed, "Other limits hold as soon as they are set.", alone),
        case!(
            "evacuation/drain",
            evacuation::drain,
            "kubectl drain empties a node of guests, which count on elsewhere.",
            alone
        ),
        case!("evacuation/blocked", evacuation::blocked, "A guest that cannot move keeps its pod, and says so."),
        case!(
            "evacuation/external",
            evacuation::external,
            "A guest that somebody else moves is only marked; virtctl takes it back."
        ),
    ]
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_unique_and_make_namespaces() {
        let names: std::collections::BTreeSet<_> = super::all().into_iter().map(|case| case.name).collect();
        assert_eq!(names.len(), super::all().len());
        assert!(names.iter().all(|name| name.len() < 50 && name.matches('/').count() == 1));
    }
}
