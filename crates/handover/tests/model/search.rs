//! The search: every state that can be reached, the promises in each, and a good end from each.

use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::hash::BuildHasherDefault;

use crate::state::{Process, SourceGuest, State, TargetGuest};
use crate::steps::{Name, steps};
use crate::tables::{Rules, Tables};

/// What a search found.
pub(crate) struct Found {
    pub(crate) states: usize,
    pub(crate) ends: usize,
    /// Ends in which the guest runs at the source, at the target, nowhere.
    pub(crate) outcomes: [usize; 3],
    /// The first mistake: what is wrong, and the shortest way to it.
    pub(crate) mistake: Option<String>,
}

struct Search {
    states: Vec<State>,
    numbers: HashMap<State, u32, BuildHasherDefault<DefaultHasher>>,
    /// How each state was first reached.
    came: Vec<(u32, Name)>,
    /// For each state, those from which it follows by itself.
    before: Vec<Vec<u32>>,
}

/// Looks at everything.
pub(crate) fn search(rules: Rules) -> Found {
    let tables = Tables::new(rules);
    let mut search = Search { states: Vec::new(), numbers: HashMap::default(), came: Vec::new(), before: Vec::new() };
    search.number(State::first(), 0, "the controller hands off");
    let (mut next, mut good, mut outcomes) = (0, Vec::new(), [0; 3]);
    while next < search.states.len() {
        let (state, from) = (search.states[next], u32::try_from(next).unwrap());
        if let Some(wrong) = broken_promise(&state) {
            return search.mistake(from, wrong);
        }
        let mut is_end = true;
        for step in steps(&tables, &state) {
            let to = search.number(step.state, from, step.name);
            if let Some(broken) = step.broken {
                return search.mistake(from, broken);
            }
            if step.is_progress {
                is_end = false;
                search.before[to as usize].push(from);
            }
        }
        if is_end {
            match end(&state) {
                Ok(outcome) => outcomes[outcome] += 1,
                Err(wrong) => return search.mistake(from, wrong),
            }
            good.push(from);
        }
        next += 1;
    }
    let ends = good.len();
    let mistake = search.stuck(good).map(|number| search.tell(number, "from here no good end can be reached"));
    Found { states: search.states.len(), ends, outcomes, mistake }
}

impl Search {
    fn number(&mut self, state: State, from: u32, name: Name) -> u32 {
        let new = u32::try_from(self.states.len()).unwrap();
        match self.numbers.entry(state) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(free) => {
                free.insert(new);
                self.states.push(state);
                self.came.push((from, name));
                self.before.push(Vec::new());
                new
            }
        }
    }

    /// The first state from which no good end follows without more faults and wishes.
    fn stuck(&self, good: Vec<u32>) -> Option<u32> {
        let mut ends_well = vec![false; self.states.len()];
        let mut open = good;
        while let Some(number) = open.pop() {
            if !std::mem::replace(&mut ends_well[number as usize], true) {
                open.extend(&self.before[number as usize]);
            }
        }
        ends_well.iter().position(|well| !well).map(|number| u32::try_from(number).unwrap())
    }

    fn mistake(&self, number: u32, wrong: &str) -> Found {
        Found { states: self.states.len(), ends: 0, outcomes: [0; 3], mistake: Some(self.tell(number, wrong)) }
    }

    fn tell(&self, number: u32, wrong: &str) -> String {
        let (mut way, mut at) = (Vec::new(), number);
        while at != 0 {
            let (from, name) = self.came[at as usize];
            way.push(name);
            at = from;
        }
        way.reverse();
        format!("{wrong}\n  {}\n{:#?}", way.join("\n  "), self.states[number as usize])
    }
}

/// What holds in every state.
fn broken_promise(state: &State) -> Option<&'static str> {
    let (source, target) = (state.source_runs(), state.target_may_run());
    if source && target {
        return Some("two copies run, or may");
    }
    if source && state.target_ran {
        return Some("the guest runs at the source after it ran at the target");
    }
    if target && state.object.ended {
        return Some("the guest runs at the target, and its object says that it has ended");
    }
    if source && state.object.record.is_targets {
        return Some("the guest runs at the source, and its object names the target");
    }
    None
}

/// What holds when nothing happens any more: where the guest runs, or what is wrong.
fn end(state: &State) -> Result<usize, &'static str> {
    let object = state.object;
    let at_source = state.source_guest == SourceGuest::Runs;
    let at_target = state.target_guest == TargetGuest::Runs;
    match (at_source, at_target) {
        (true, true) => Err("two copies run"),
        (true, false) if object.record.is_targets || object.ended => {
            Err("the guest runs at the source: its object disagrees")
        }
        (true, false) if !object.record.failed => Err("the guest stayed, and the move is not over"),
        (true, false) if state.target_process != Process::Gone => {
            Err("the guest stayed, and the target was not tidied up")
        }
        (true, false) => Ok(0),
        (false, true) if !object.record.is_targets => Err("the guest runs at the target: its object disagrees"),
        (false, true) if state.source_process == Process::Alive => {
            Err("the guest moved, and the source was not tidied up")
        }
        (false, true) => Ok(1),
        (false, false) if !object.ended => Err("the guest does not run, and its object does not say so"),
        (false, false) => Ok(2),
    }
}
