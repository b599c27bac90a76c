//! Everything that can happen next.
//!
//! Steps of the parts happen sooner or later; faults and wishes may happen or not. What is late has simply not happened yet, what is lost
//! never does, and what is repeated happens again: handlers repeat their calls until a report or the object says otherwise.

use ferrovirt_handover::{
    EndedSourceOrder, Outcome, Source, SourceOrder, SourceStage, SourceWords, TargetOrder, TargetSeen, TargetStage,
    Verdict,
};

use crate::state::{Call, Handler, Heard, Link, Network, Object, Process, SourceGuest, State, TargetGuest, VERDICTS};
use crate::tables::{Deed, Machine, SourceEvent, Tables, TargetEvent, Word};

/// A step's name, for whoever reads about a mistake.
pub(crate) type Name = &'static str;

/// A state that may follow.
pub(crate) struct Next {
    pub(crate) name: Name,
    pub(crate) state: State,
    /// Nobody has to do anything for it, and nothing has to go wrong.
    pub(crate) is_progress: bool,
    /// A promise that this very step breaks.
    pub(crate) broken: Option<&'static str>,
}

pub(crate) struct Steps<'a> {
    tables: &'a Tables,
    now: State,
    found: Vec<Next>,
}

/// All that can happen.
pub(crate) fn steps(tables: &Tables, now: &State) -> Vec<Next> {
    let mut steps = Steps { tables, now: *now, found: Vec::new() };
    steps.hypervisors();
    steps.links();
    steps.calls();
    steps.reports();
    steps.source_handler();
    steps.target_handler();
    steps.controller();
    steps.faults();
    steps.found
}

impl Steps<'_> {
    fn add(&mut self, name: Name, state: State) {
        let state = self.settled(state);
        if state != self.now {
            self.found.push(Next { name, state, is_progress: true, broken: None });
        }
    }

    fn add_fault(&mut self, name: Name, state: State) {
        let state = self.settled(state);
        self.found.push(Next { name, state, is_progress: false, broken: None });
    }

    /// The same, without what makes no difference any more.
    fn settled(&self, mut state: State) -> State {
        let record = state.object.record;
        state.was_over |= (record.failed || state.object.ended) && !record.is_targets;
        if state.source_process != Process::Alive {
            state.calls[..5].fill(false);
        }
        if state.target_process != Process::Alive {
            state.calls[5..].fill(false);
        }
        if let Some(machine) = state.source {
            *state.call(Call::Begin) = false;
            let is_idle = |event| self.tables.source.is_idle(machine, event);
            *state.call(Call::Cancel) &= !is_idle(SourceEvent::Cancel);
            for (number, verdict) in (0..).zip(VERDICTS) {
                *state.call(Call::Tell(number)) &= !is_idle(SourceEvent::Told(verdict));
            }
        }
        if let Some(machine) = state.target {
            *state.call(Call::Prepare) = false;
            let is_idle = |event| self.tables.target.is_idle(machine, event);
            *state.call(Call::Discard) &= !is_idle(TargetEvent::Discard);
            let source = state.source.map(|machine| self.tables.source.machine(machine));
            let nobody_listens = state.source_process != Process::Alive || source.is_some_and(Source::is_over);
            let words = [Word::Prepare, Word::Finish, Word::Query].map(TargetEvent::Heard);
            if nobody_listens && words.into_iter().chain([TargetEvent::LinkLost]).all(is_idle) {
                state.links = [None; 3];
            }
        }
        state
    }

    /// The source's machine goes on.
    fn source_on(&self, state: &mut State, event: SourceEvent) {
        if state.source_process != Process::Alive {
            return;
        }
        let Some(machine) = state.source else { return };
        let (after, deeds) = self.tables.source.on(machine, event);
        state.source = Some(after);
        for deed in deeds {
            source_does(state, *deed);
        }
        if self.tables.source.machine(after).is_over() {
            close_link(state);
        }
    }

    fn target_on(&self, state: &mut State, event: TargetEvent) {
        if state.target_process != Process::Alive {
            return;
        }
        let Some(machine) = state.target else { return };
        let (after, deeds) = self.tables.target.on(machine, event);
        state.target = Some(after);
        for deed in deeds {
            target_does(state, *deed);
        }
    }

    /// A launcher that notices late is a hypervisor that is late.
    fn hypervisors(&mut self) {
        let now = self.now;
        if now.source_guest == SourceGuest::Sent {
            let mut state = State { source_guest: SourceGuest::Still, ..now };
            self.source_on(&mut state, SourceEvent::Copied);
            self.add("the source's hypervisor has sent everything", state);
            let mut state = State { source_guest: SourceGuest::Runs, ..now };
            self.source_on(&mut state, SourceEvent::CopyFailed);
            self.add("the source's hypervisor gives up", state);
        }
        if now.source_process == Process::Alive && now.source_guest == SourceGuest::Gone {
            let mut state = now;
            kill_source(&mut state, Process::EndedUnknown);
            self.add("the source's launcher exits", state);
        }
        let mut failed = State { target_guest: TargetGuest::Gone, ..now };
        self.target_on(&mut failed, TargetEvent::Failed);
        match now.target_guest {
            TargetGuest::Preparing => {
                let mut state = State { target_guest: TargetGuest::Receives, ..now };
                self.target_on(&mut state, TargetEvent::Prepared);
                self.add("the target's hypervisor can receive", state);
                self.add("the target's hypervisor cannot receive", failed);
            }
            TargetGuest::Receives if now.may_crash => {
                self.add_fault("the target's hypervisor ends", State { may_crash: false, ..failed });
            }
            TargetGuest::Finishing => {
                let mut state = State { target_guest: TargetGuest::Runs, target_ran: true, ..now };
                self.target_on(&mut state, TargetEvent::Finished);
                self.add("the guest runs at the target", state);
                self.add("the target's hypervisor refuses to run the guest", failed);
            }
            TargetGuest::Absent | TargetGuest::Receives | TargetGuest::Runs | TargetGuest::Gone => {}
        }
    }

    fn links(&mut self) {
        let now = self.now;
        if now.wants_link && now.source_process == Process::Alive {
            let mut state = State { wants_link: false, ..now };
            let reachable = now.target_process == Process::Alive && now.target.is_some();
            if now.network == Network::Cut || !reachable {
                // In doubt it tries again for ever, which changes nothing.
                self.source_on(&mut state, SourceEvent::LinkLost);
                self.add("the source gets no link", state);
            } else {
                open_link(&mut state);
                self.source_on(&mut state, SourceEvent::Linked);
                self.add("the source has a link", state);
            }
        }
        for place in 0..now.links.len() {
            if let Some(link) = now.links[place] {
                self.link(place, link);
            }
        }
    }

    fn link(&mut self, place: usize, link: Link) {
        let now = self.now;
        let mut read = link;
        if link.target_holds
            && let Some(word) = read.to_target.pop()
        {
            let mut state = now;
            state.links[place] = Some(read);
            self.target_on(&mut state, TargetEvent::Heard(word));
            self.add(said_to_target(word), state);
        }
        let mut read = link;
        if link.source_holds
            && let Some(word) = read.to_source.pop()
        {
            let mut state = now;
            state.links[place] = Some(read);
            self.source_on(&mut state, SourceEvent::Heard(word));
            self.add(said_to_source(word), state);
        }
        if link.is_broken && link.target_holds {
            let mut state = now;
            leave(&mut state, place, |link| link.target_holds = false);
            self.target_on(&mut state, TargetEvent::LinkLost);
            self.add("the target learns that the link is lost", state);
        }
        if link.is_broken && link.source_holds {
            let mut state = now;
            leave(&mut state, place, |link| link.source_holds = false);
            self.source_on(&mut state, SourceEvent::LinkLost);
            self.add("the source learns that the link is lost", state);
        }
    }

    fn calls(&mut self) {
        for (call, name) in [
            (Call::Begin, "a call to begin arrives"),
            (Call::Cancel, "a call to cancel arrives"),
            (Call::Tell(0), "the verdict Started arrives"),
            (Call::Tell(1), "the verdict Never arrives"),
            (Call::Tell(2), "the verdict Lost arrives"),
            (Call::Prepare, "a call to prepare arrives"),
            (Call::Discard, "a call to discard arrives"),
        ] {
            let mut state = self.now;
            if !std::mem::take(state.call(call)) {
                continue;
            }
            match call {
                Call::Begin | Call::Cancel | Call::Tell(_) => self.call_source(&mut state, call),
                Call::Prepare | Call::Discard => self.call_target(&mut state, call),
            }
            self.add(name, state);
        }
    }

    fn call_source(&self, state: &mut State, call: Call) {
        if state.source_process != Process::Alive {
            return;
        }
        match (call, state.source) {
            (Call::Begin, None) => {
                let (machine, deeds) = &self.tables.begun;
                state.source = Some(*machine);
                deeds.iter().for_each(|deed| source_does(state, *deed));
            }
            (Call::Cancel, None) => state.source = Some(self.tables.called_off),
            (Call::Cancel, Some(_)) => self.source_on(state, SourceEvent::Cancel),
            (Call::Tell(verdict), Some(_)) => {
                self.source_on(state, SourceEvent::Told(VERDICTS[usize::from(verdict)]));
            }
            _ => {}
        }
    }

    fn call_target(&self, state: &mut State, call: Call) {
        if state.target_process != Process::Alive {
            return;
        }
        if state.target.is_none() {
            state.target = Some(self.tables.waiting);
        }
        if call == Call::Discard {
            self.target_on(state, TargetEvent::Discard);
        }
    }

    /// Handlers hear how their launchers are, and everybody reads the object.
    fn reports(&mut self) {
        let now = self.now;
        let mut state = now;
        let source = now.source.map(|machine| self.tables.source_reports[usize::from(machine)]);
        state.source_handler.heard = heard(now.source_process, source);
        self.add("the source's handler hears its launcher", state);
        let mut state = now;
        state.target_handler.heard = heard(now.target_process, now.target);
        self.add("the target's handler hears its launcher", state);
        let mut state = now;
        state.source_handler.view = now.object;
        self.add("the source's handler reads the object", state);
        let mut state = now;
        state.target_handler.view = now.object;
        self.add("the target's handler reads the object", state);
    }

    /// A write on what was read; it is refused if that is not the newest any more.
    fn write(&mut self, name: Name, view: Object, change: impl FnOnce(&mut Object)) {
        let mut state = self.now;
        if view == state.object || self.tables.rules.blind_writes {
            change(&mut state.object);
            self.add(name, state);
        }
    }

    fn send(&mut self, name: Name, call: Call) {
        let mut state = self.now;
        *state.call(call) = true;
        self.add(name, state);
    }

    fn source_handler(&mut self) {
        let Handler { view, heard } = self.now.source_handler;
        let tables = self.tables;
        let stage = match heard {
            Heard::Nothing => return,
            Heard::Idle => None,
            Heard::At(machine) => Some(tables.stage_of_source(machine)),
            Heard::EndedUnstarted => return self.ended_source(view, SourceWords::NeverFinished),
            Heard::EndedUnknown => return self.ended_source(view, SourceWords::Unknown),
        };
        if view.ended {
            return;
        }
        match (tables.rules.at_source)(&view.record(), stage) {
            SourceOrder::Nothing | SourceOrder::Progress => {}
            SourceOrder::Begin => self.send("the source's handler says: begin", Call::Begin),
            SourceOrder::Cancel => self.send("the source's handler says: cancel", Call::Cancel),
            SourceOrder::Tell(Verdict::Started) => self.send("the source's handler tells: Started", Call::Tell(0)),
            SourceOrder::Tell(Verdict::Never) => self.send("the source's handler tells: Never", Call::Tell(1)),
            SourceOrder::Tell(Verdict::Lost) => self.send("the source's handler tells: Lost", Call::Tell(2)),
            SourceOrder::Fail(_) => {
                self.write("the source's handler writes: failed", view, |object| {
                    object.record.failed = true;
                    object.record.source_may_resume = true;
                });
            }
            SourceOrder::Lose => self.write("the source's handler writes: lost", view, |object| object.ended = true),
        }
    }

    fn ended_source(&mut self, view: Object, words: SourceWords) {
        if view.ended {
            return;
        }
        match (self.tables.rules.at_ended_source)(&view.record(), words) {
            EndedSourceOrder::Nothing => {}
            EndedSourceOrder::Abort => {
                self.write("the source's handler writes: abort", view, |object| object.record.abort = true);
            }
            EndedSourceOrder::End => {
                self.write("the source's handler writes: ended", view, |object| object.ended = true);
            }
        }
    }

    fn target_handler(&mut self) {
        let Handler { view, heard } = self.now.target_handler;
        let tables = self.tables;
        let seen = match heard {
            Heard::Nothing => TargetSeen::Silence,
            Heard::Idle => TargetSeen::Idle,
            Heard::At(machine) => TargetSeen::At(tables.stage_of_target(machine)),
            Heard::EndedUnstarted => TargetSeen::EndedUnstarted,
            Heard::EndedUnknown => TargetSeen::EndedUnknown,
        };
        match (tables.rules.at_target)(&view.record(), &seen) {
            TargetOrder::Nothing => {}
            TargetOrder::Prepare => self.send("the target's handler says: prepare", Call::Prepare),
            TargetOrder::Discard => self.send("the target's handler says: discard", Call::Discard),
            TargetOrder::Announce => {
                self.write("the target's handler writes its address", view, |object| object.record.has_address = true);
            }
            TargetOrder::TakeOver => {
                self.write("the target's handler takes over", view, |object| object.record.is_targets = true);
            }
            TargetOrder::Fail { source_may_resume, .. } => {
                self.write("the target's handler writes: failed", view, |object| {
                    object.record.failed = true;
                    object.record.source_may_resume = source_may_resume;
                });
            }
        }
    }

    /// It has no memory that a crash could take: what it may have read at any moment, it may act on at any later one.
    fn controller(&mut self) {
        let now = self.now;
        let object = now.object;
        if !object.record.failed && !object.record.is_targets && !object.ended {
            if now.target_process == Process::Gone {
                let mut state = now;
                state.object.record.failed = true;
                self.add("the controller writes: failed, the target's pod is gone", state);
            }
            if !object.record.abort {
                let mut state = now;
                state.object.record.abort = true;
                self.add_fault("the controller wants the move to end", state);
            }
        }
        let is_hasty = self.tables.rules.hasty_controller && object.record.abort;
        if (now.was_over || is_hasty) && now.target_process != Process::Gone {
            let broken = now.target_may_run().then_some("the controller deletes a target that runs the guest");
            let mut state = now;
            kill_target(&mut state, Process::Gone);
            self.add("the controller deletes the target's pod", state);
            self.blame(broken);
        }
        if object.record.is_targets && !object.ended && now.target_process != Process::Alive {
            let mut state = now;
            state.object.ended = true;
            self.add("the guest's owner writes: ended", state);
        }
        if object.record.is_targets && now.source_process == Process::Alive {
            let broken = now.source_runs().then_some("the controller deletes a source that runs the guest");
            let mut state = now;
            kill_source(&mut state, Process::EndedUnknown);
            self.add("the controller deletes the source's pod", state);
            self.blame(broken);
        }
    }

    fn blame(&mut self, broken: Option<&'static str>) {
        if let Some(last) = self.found.last_mut() {
            last.broken = broken;
        }
    }

    fn faults(&mut self) {
        let now = self.now;
        if now.network == Network::Whole {
            let mut state = State { network: Network::Cut, ..now };
            break_links(&mut state);
            self.add_fault("the network is cut", state);
        }
        if now.network == Network::Cut {
            self.add_fault("the network heals", State { network: Network::Healed, ..now });
        }
        if now.may_crash {
            self.crashes(&State { may_crash: false, ..now });
        }
    }

    fn crashes(&mut self, now: &State) {
        let mut state = State { source_handler: Handler::BLANK, ..*now };
        break_links(&mut state);
        self.add_fault("the source's handler crashes", state);
        let mut state = State { target_handler: Handler::BLANK, ..*now };
        break_links(&mut state);
        self.add_fault("the target's handler crashes", state);
        if now.source_process == Process::Alive {
            let mut state = *now;
            kill_source(&mut state, Process::EndedUnknown);
            self.add_fault("the source's launcher dies", state);
            if self.never_finished() {
                let mut state = *now;
                kill_source(&mut state, Process::EndedUnstarted);
                self.add_fault("the guest ends at the source, and its launcher says so", state);
            }
        }
        // Once the guest is the target's, its end there is an ordinary one.
        if now.target_process == Process::Alive && !now.object.record.is_targets {
            let mut state = *now;
            kill_target(&mut state, Process::EndedUnknown);
            self.add_fault("the target's launcher dies", state);
            let mut state = *now;
            kill_target(&mut state, Process::Gone);
            self.add_fault("the target's launcher dies, and its pod goes", state);
            if self.never_started() {
                let mut state = *now;
                kill_target(&mut state, Process::EndedUnstarted);
                self.add_fault("the target's launcher is ended, and says that it never ran the guest", state);
            }
        }
    }

    /// What a source's launcher may say at its end.
    fn never_finished(&self) -> bool {
        let stage = self.now.source.map(|machine| self.tables.stage_of_source(machine));
        !matches!(stage, Some(SourceStage::Doubtful | SourceStage::Over(Outcome::Moved | Outcome::Lost)))
    }

    /// What a target's launcher may say at its end.
    fn never_started(&self) -> bool {
        let stage = self.now.target.map(|machine| self.tables.stage_of_target(machine));
        !matches!(stage, Some(TargetStage::Starting | TargetStage::Started))
    }
}

fn heard(process: Process, machine: Option<Machine>) -> Heard {
    match process {
        Process::Alive => machine.map_or(Heard::Idle, Heard::At),
        Process::EndedUnstarted => Heard::EndedUnstarted,
        Process::EndedUnknown => Heard::EndedUnknown,
        Process::Gone => Heard::Nothing,
    }
}

fn source_does(state: &mut State, deed: Deed) {
    match deed {
        Deed::OpenLink => state.wants_link = true,
        Deed::Say(word) => {
            let link = state.links.iter_mut().rev().flatten().find(|link| link.source_holds);
            if let Some(link) = link {
                link.to_target.push(word);
            }
        }
        Deed::Copy => state.source_guest = SourceGuest::Sent,
        // The hypervisor says what came of it: it may have been done already.
        Deed::StopCopying => {}
        Deed::Resume => state.source_guest = SourceGuest::Runs,
        Deed::Release => state.source_guest = SourceGuest::Gone,
        Deed::Prepare | Deed::Finish | Deed::Discard => panic!("the source does not {deed:?}"),
    }
}

fn target_does(state: &mut State, deed: Deed) {
    match deed {
        Deed::Prepare => state.target_guest = TargetGuest::Preparing,
        Deed::Finish if state.target_guest == TargetGuest::Receives => state.target_guest = TargetGuest::Finishing,
        Deed::Finish => {}
        // One that was told to run the guest may do so before it is gone.
        Deed::Discard if state.target_may_run() => {}
        Deed::Discard => state.target_guest = TargetGuest::Gone,
        Deed::Say(word) => {
            let link = state.links.iter_mut().rev().flatten().find(|link| link.target_holds);
            if let Some(link) = link {
                link.to_source.push(word);
            }
        }
        Deed::OpenLink | Deed::Copy | Deed::StopCopying | Deed::Resume | Deed::Release => {
            panic!("the target does not {deed:?}")
        }
    }
}

fn open_link(state: &mut State) {
    let free = state.links.iter().position(Option::is_none).expect("faults do not break this many links");
    let link = Link {
        to_target: Default::default(),
        to_source: Default::default(),
        is_broken: false,
        source_holds: true,
        target_holds: true,
    };
    state.links[free] = Some(link);
}

/// An end of a link is closed; when both are, the link is no more.
fn leave(state: &mut State, place: usize, change: impl FnOnce(&mut Link)) {
    let Some(mut link) = state.links[place] else { return };
    change(&mut link);
    link.is_broken = true;
    // What nobody will read makes no difference.
    if !link.source_holds {
        link.to_source = Default::default();
    }
    if !link.target_holds {
        link.to_target = Default::default();
    }
    let is_held = link.source_holds || link.target_holds;
    state.links[place] = is_held.then_some(link);
    let mut packed = [None; 3];
    for (place, link) in packed.iter_mut().zip(state.links.into_iter().flatten()) {
        *place = Some(link);
    }
    state.links = packed;
}

/// The source leaves its link.
fn close_link(state: &mut State) {
    state.wants_link = false;
    while let Some(place) = state.links.iter().position(|link| link.is_some_and(|link| link.source_holds)) {
        leave(state, place, |link| link.source_holds = false);
    }
}

fn break_links(state: &mut State) {
    for link in state.links.iter_mut().flatten() {
        link.is_broken = true;
    }
}

fn kill_source(state: &mut State, how: Process) {
    close_link(state);
    state.source_process = how;
    state.source = None;
    state.source_guest = SourceGuest::Gone;
}

fn kill_target(state: &mut State, how: Process) {
    while let Some(place) = state.links.iter().position(|link| link.is_some_and(|link| link.target_holds)) {
        leave(state, place, |link| link.target_holds = false);
    }
    state.target_process = how;
    state.target = None;
    state.target_guest = TargetGuest::Gone;
}

fn said_to_target(word: Word) -> Name {
    match word {
        Word::Prepare => "the target hears Prepare",
        Word::Finish => "the target hears Finish",
        _ => "the target hears Query",
    }
}

fn said_to_source(word: Word) -> Name {
    match word {
        Word::Prepared => "the source hears Prepared",
        Word::Started => "the source hears Started",
        _ => "the source hears Never",
    }
}
