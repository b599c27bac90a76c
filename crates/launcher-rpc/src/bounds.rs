//! How much a report may hold. Launchers keep to it by themselves; handlers make sure of it, since a launcher is as hostile as its guest.
//!
//! What is too long is cut, and a list ends where it has become too long: the rest of the report may still be true.

use ferrovirt_handover::{Outcome, SourceStage, TargetStage};

use crate::messages::{AgentReport, DomainReport, GuestOs};
use crate::migration::{MigrationReport, Stage};

/// Characters of a name, a version and the like.
pub const TEXT: usize = 256;
/// Characters of an explanation.
pub const WORDS: usize = 1024;
/// Network interfaces of a guest, and what it says of its own.
pub const INTERFACES: usize = 64;
/// Addresses of an interface.
pub const ADDRESSES: usize = 64;
/// Disks of a guest.
pub const DISKS: usize = 256;

impl DomainReport {
    /// The same report, with no more than there is room for.
    #[must_use]
    pub fn within_bounds(mut self) -> Self {
        let Self {
            uid,
            state: _,
            qemu_version,
            machine_type,
            emulated: _,
            interfaces,
            disks,
            agent,
            memory: _,
            migration,
            ending,
        } = &mut self;
        for text in [uid, qemu_version, machine_type] {
            cut_some(text, TEXT);
        }
        interfaces.truncate(INTERFACES);
        for interface in interfaces {
            for text in [&mut interface.name, &mut interface.mac, &mut interface.tap] {
                cut(text, TEXT);
            }
        }
        disks.truncate(DISKS);
        for (volume, target) in disks {
            for text in [volume, target] {
                cut(text, TEXT);
            }
        }
        bound_agent(agent);
        if let Some(migration) = migration {
            bound_migration(migration);
        }
        cut_some(ending, WORDS);
        self
    }
}

fn bound_agent(agent: &mut AgentReport) {
    let AgentReport { connected: _, version, hostname, os, timezone, interfaces, frozen: _ } = agent;
    for text in [version, hostname, timezone] {
        cut_some(text, TEXT);
    }
    if let Some(os) = os {
        let GuestOs { name, kernel_release, version, pretty_name, version_id, kernel_version, machine, id } = os;
        for text in [name, kernel_release, version, pretty_name, version_id, kernel_version, machine, id] {
            cut(text, TEXT);
        }
    }
    interfaces.truncate(INTERFACES);
    for interface in interfaces {
        for text in [&mut interface.name, &mut interface.mac] {
            cut(text, TEXT);
        }
        interface.addresses.truncate(ADDRESSES);
        interface.addresses.iter_mut().for_each(|text| cut(text, TEXT));
    }
}

fn bound_migration(report: &mut MigrationReport) {
    let MigrationReport { id, stage, mode: _, progress: _, doubt } = report;
    cut(id, TEXT);
    cut_some(doubt, WORDS);
    match stage {
        Stage::Source(SourceStage::Over(Outcome::Stayed(why))) | Stage::Target(TargetStage::Never(why)) => {
            cut(why, WORDS);
        }
        Stage::Source(_) | Stage::Target(_) => {}
    }
}

fn cut_some(text: &mut Option<String>, most: usize) {
    if let Some(text) = text {
        cut(text, most);
    }
}

fn cut(text: &mut String, most: usize) {
    if let Some((end, _)) = text.char_indices().nth(most) {
        text.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{AgentInterface, DomainInterface, DomainState};
    use crate::migration::Mode;

    #[test]
    fn a_report_of_a_hostile_launcher_is_cut_to_size() {
        let long = || "é".repeat(2000);
        let card = AgentInterface { name: long(), mac: long(), addresses: vec![long(); 100] };
        let interface = DomainInterface { name: long(), mac: long(), tap: long(), queues: 1, link_up: true };
        for stage in
            [Stage::Source(SourceStage::Over(Outcome::Stayed(long()))), Stage::Target(TargetStage::Never(long()))]
        {
            let os = GuestOs { name: long(), pretty_name: long(), id: long(), ..GuestOs::default() };
            let report = DomainReport {
                uid: Some(long()),
                state: DomainState::Running,
                machine_type: Some(long()),
                interfaces: vec![interface.clone(); 500],
                disks: vec![(long(), long()); 500],
                agent: AgentReport {
                    hostname: Some(long()),
                    os: Some(os),
                    interfaces: vec![card.clone(); 100],
                    ..AgentReport::default()
                },
                migration: Some(MigrationReport {
                    id: long(),
                    stage,
                    mode: Mode::default(),
                    progress: None,
                    doubt: Some(long()),
                }),
                ending: Some(long()),
                ..DomainReport::default()
            };
            let bounded = report.within_bounds();
            assert!(serde_json::to_vec(&bounded).unwrap().len() < 3 << 20);
            assert_eq!(bounded.state, DomainState::Running);
            assert_eq!(bounded.ending.as_deref().map(|text| text.chars().count()), Some(WORDS));
            assert_eq!(bounded.clone().within_bounds(), bounded);
        }
    }

    #[test]
    fn an_honest_report_stays_as_it_is() {
        let report = DomainReport {
            uid: Some("1-2-3".to_owned()),
            disks: vec![("root".to_owned(), "vda".to_owned())],
            agent: AgentReport { connected: true, hostname: Some("büro".to_owned()), ..AgentReport::default() },
            ..DomainReport::default()
        };
        assert_eq!(report.clone().within_bounds(), report);
    }
}
