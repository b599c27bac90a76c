//! The real machines and judgements, written out as tables: every machine that inputs can lead to, and what each input does to it.
//!
//! Reasons are for people and decide nothing, so machines that differ only in them are one. States of the search then are small values,
//! and each answer of the code under test is asked for once.

use std::collections::{HashMap, HashSet};

use ferrovirt_handover::{
    EndedSourceOrder, Record, Source, SourceAction, SourceInput, SourceOrder, SourceStage, SourceWords, Target,
    TargetAction, TargetInput, TargetOrder, TargetSeen, TargetStage, ToSource, ToTarget, Verdict, at_ended_source,
    at_source, at_target,
};

/// What is searched: the code of this crate, or a variant of it with a mistake.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) source: fn(&mut Source, SourceInput) -> Vec<SourceAction>,
    pub(crate) target: fn(&mut Target, TargetInput) -> Vec<TargetAction>,
    pub(crate) at_source: fn(&Record, Option<&SourceStage>) -> SourceOrder,
    pub(crate) at_ended_source: fn(&Record, SourceWords) -> EndedSourceOrder,
    pub(crate) at_target: fn(&Record, &TargetSeen<'_>) -> TargetOrder,
    /// The controller deletes the target's pod as soon as it wants the move to end.
    pub(crate) hasty_controller: bool,
    /// Handlers write whatever was written since they looked.
    pub(crate) blind_writes: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            source: Source::on,
            target: Target::on,
            at_source,
            at_ended_source,
            at_target,
            hasty_controller: false,
            blind_writes: false,
        }
    }
}

/// A word on a link, in either direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Word {
    Prepare,
    Finish,
    Query,
    Prepared,
    Started,
    Never,
}

/// What happens to the source's machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum SourceEvent {
    Linked,
    LinkLost,
    Heard(Word),
    Copied,
    CopyFailed,
    Cancel,
    Told(Verdict),
}

/// What happens to the target's machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum TargetEvent {
    Heard(Word),
    LinkLost,
    Prepared,
    Finished,
    Failed,
    Discard,
}

const WHY: &str = "a reason";

impl SourceEvent {
    const ALL: [Self; 11] = [
        Self::Linked,
        Self::LinkLost,
        Self::Heard(Word::Prepared),
        Self::Heard(Word::Started),
        Self::Heard(Word::Never),
        Self::Copied,
        Self::CopyFailed,
        Self::Cancel,
        Self::Told(Verdict::Started),
        Self::Told(Verdict::Never),
        Self::Told(Verdict::Lost),
    ];

    fn input(self) -> SourceInput {
        match self {
            Self::Linked => SourceInput::Linked,
            Self::LinkLost => SourceInput::LinkLost,
            Self::Heard(Word::Prepared) => SourceInput::Heard(ToSource::Prepared),
            Self::Heard(Word::Started) => SourceInput::Heard(ToSource::Started),
            Self::Heard(Word::Never) => SourceInput::Heard(ToSource::Never(WHY.to_owned())),
            Self::Heard(word) => panic!("the target does not say {word:?}"),
            Self::Copied => SourceInput::Copied,
            Self::CopyFailed => SourceInput::CopyFailed(WHY.to_owned()),
            Self::Cancel => SourceInput::Cancel(WHY.to_owned()),
            Self::Told(verdict) => SourceInput::Told(verdict),
        }
    }
}

impl TargetEvent {
    const ALL: [Self; 8] = [
        Self::Heard(Word::Prepare),
        Self::Heard(Word::Finish),
        Self::Heard(Word::Query),
        Self::LinkLost,
        Self::Prepared,
        Self::Finished,
        Self::Failed,
        Self::Discard,
    ];

    fn input(self) -> TargetInput {
        match self {
            Self::Heard(Word::Prepare) => TargetInput::Heard(ToTarget::Prepare),
            Self::Heard(Word::Finish) => TargetInput::Heard(ToTarget::Finish),
            Self::Heard(Word::Query) => TargetInput::Heard(ToTarget::Query),
            Self::Heard(word) => panic!("the source does not say {word:?}"),
            Self::LinkLost => TargetInput::LinkLost,
            Self::Prepared => TargetInput::Prepared,
            Self::Finished => TargetInput::Finished,
            Self::Failed => TargetInput::Failed(WHY.to_owned()),
            Self::Discard => TargetInput::Discard(WHY.to_owned()),
        }
    }
}

/// What a machine wants done, without reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    OpenLink,
    Say(Word),
    Copy,
    StopCopying,
    Resume,
    Release,
    Prepare,
    Finish,
    Discard,
}

fn source_deed(action: SourceAction) -> Deed {
    match action {
        SourceAction::OpenLink => Deed::OpenLink,
        SourceAction::Say(ToTarget::Prepare) => Deed::Say(Word::Prepare),
        SourceAction::Say(ToTarget::Finish) => Deed::Say(Word::Finish),
        SourceAction::Say(ToTarget::Query) => Deed::Say(Word::Query),
        SourceAction::Copy => Deed::Copy,
        SourceAction::StopCopying => Deed::StopCopying,
        SourceAction::Resume => Deed::Resume,
        SourceAction::Release => Deed::Release,
    }
}

fn target_deed(action: &TargetAction) -> Deed {
    match action {
        TargetAction::Prepare => Deed::Prepare,
        TargetAction::Finish => Deed::Finish,
        TargetAction::Discard => Deed::Discard,
        TargetAction::Say(ToSource::Prepared) => Deed::Say(Word::Prepared),
        TargetAction::Say(ToSource::Started) => Deed::Say(Word::Started),
        TargetAction::Say(ToSource::Never(_)) => Deed::Say(Word::Never),
    }
}

/// A machine of the tables.
pub(crate) type Machine = u8;

/// All machines of one kind and what events do to them.
pub(crate) struct Table<M, E> {
    machines: Vec<M>,
    steps: HashMap<(Machine, E), (Machine, Vec<Deed>)>,
    /// Events that change nothing, now and whatever happens before them.
    idle: HashSet<(Machine, E)>,
}

impl<M: Clone + std::fmt::Debug, E: Copy + Eq + std::hash::Hash> Table<M, E> {
    /// Follows every event from the first machines on.
    fn new(first: Vec<M>, events: &[E], on: impl Fn(&mut M, E) -> Vec<Deed>) -> Self {
        let mut table = Self { machines: Vec::new(), steps: HashMap::new(), idle: HashSet::new() };
        for machine in first {
            table.number(machine);
        }
        let mut next = 0;
        while next < table.machines.len() {
            for event in events {
                let mut machine = table.machines[next].clone();
                let deeds = on(&mut machine, *event);
                let after = table.number(machine);
                table.steps.insert((u8::try_from(next).unwrap(), *event), (after, deeds));
            }
            next += 1;
        }
        table.find_idle(events);
        table
    }

    fn find_idle(&mut self, events: &[E]) {
        let numbers = 0..u8::try_from(self.machines.len()).unwrap();
        let pairs: Vec<(Machine, E)> =
            numbers.flat_map(|number| events.iter().map(move |event| (number, *event))).collect();
        let is_silent = |deeds: &[Deed]| deeds.iter().all(|deed| matches!(deed, Deed::Say(_)));
        self.idle = pairs
            .iter()
            .copied()
            .filter(|pair| self.steps[pair].0 == pair.0 && is_silent(&self.steps[pair].1))
            .collect();
        loop {
            let before = self.idle.len();
            let idle = self.idle.clone();
            self.idle.retain(|(number, event)| {
                events.iter().all(|other| idle.contains(&(self.steps[&(*number, *other)].0, *event)))
            });
            if self.idle.len() == before {
                return;
            }
        }
    }

    /// Whether an event does no more than make the machine say something, now and at any later time.
    pub(crate) fn is_idle(&self, machine: Machine, event: E) -> bool {
        self.idle.contains(&(machine, event))
    }

    fn number(&mut self, machine: M) -> Machine {
        let bare = without_reasons(&machine);
        let known = self.machines.iter().position(|known| without_reasons(known) == bare);
        let number = known.unwrap_or_else(|| {
            self.machines.push(machine);
            self.machines.len() - 1
        });
        u8::try_from(number).unwrap()
    }

    pub(crate) fn on(&self, machine: Machine, event: E) -> (Machine, &[Deed]) {
        let (after, deeds) = &self.steps[&(machine, event)];
        (*after, deeds)
    }

    pub(crate) fn machine(&self, machine: Machine) -> &M {
        &self.machines[usize::from(machine)]
    }
}

/// How a machine shows itself, with nothing between quotation marks.
fn without_reasons(machine: &impl std::fmt::Debug) -> String {
    format!("{machine:?}").split('"').step_by(2).collect()
}

/// The code under test as tables.
pub(crate) struct Tables {
    pub(crate) rules: Rules,
    pub(crate) source: Table<Source, SourceEvent>,
    /// For each of them, the first that is at the same stage: reports tell no more.
    pub(crate) source_reports: Vec<Machine>,
    pub(crate) target: Table<Target, TargetEvent>,
    /// A move that has begun, and what that takes.
    pub(crate) begun: (Machine, Vec<Deed>),
    /// A move that will not begin.
    pub(crate) called_off: Machine,
    /// A target that was prepared.
    pub(crate) waiting: Machine,
}

impl Tables {
    pub(crate) fn new(rules: Rules) -> Self {
        let (begun, actions) = Source::begin();
        let first = vec![begun, Source::called_off(WHY.to_owned())];
        let source = Table::new(first, &SourceEvent::ALL, |machine, event| {
            (rules.source)(machine, event.input()).into_iter().map(source_deed).collect()
        });
        let stages: Vec<String> = source.machines.iter().map(|machine| without_reasons(machine.stage())).collect();
        let first = |stage: &String| stages.iter().position(|other| other == stage).unwrap_or_default();
        let source_reports = stages.iter().map(|stage| u8::try_from(first(stage)).unwrap()).collect();
        let target = Table::new(vec![Target::default()], &TargetEvent::ALL, |machine, event| {
            (rules.target)(machine, event.input()).iter().map(target_deed).collect()
        });
        let begun = (0, actions.into_iter().map(source_deed).collect());
        Self { rules, source, source_reports, target, begun, called_off: 1, waiting: 0 }
    }

    pub(crate) fn stage_of_source(&self, machine: Machine) -> &SourceStage {
        self.source.machine(machine).stage()
    }

    pub(crate) fn stage_of_target(&self, machine: Machine) -> &TargetStage {
        self.target.machine(machine).stage()
    }
}
