//! The guest's life as a pure state machine: what libvirt tells and what was asked go in, what the handler is told comes out.
//!
//! ```text
//!            start            created
//!   Absent ────────► Starting ────────► Running ◄────► Paused(why)
//!      ▲                │                  │               │
//!      └── start failed ┘                  └─ ShuttingDown ┤   asked to power off, and has not yet
//!                                                          ▼
//!                                                     Off(why)     the end; nothing follows
//! ```
//!
//! Why a guest ended is libvirt's word, corrected by what only we know: whether *we* killed it. libvirt says "failed" when QEMU vanished
//! and "crashed" when the guest panicked.

use ferrovirt_launcher_rpc::messages::{DomainState, OffReason, PauseReason};
use ferrovirt_libvirt::{CrashedDetail, Lifecycle, PausedReason, ShutdownDetail, ShutoffReason, State, StoppedDetail};

/// Where the guest is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    #[default]
    Absent,
    /// With the end that came before the start was reported as done.
    Starting(Option<StoppedDetail>),
    Running,
    Paused(PauseReason),
    Off(OffReason),
}

/// What was asked of a guest that is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Wish {
    #[default]
    Live,
    /// Power off, with time to do so.
    PowerOff,
    /// End at once.
    EndNow,
}

/// The guest's life so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Life {
    phase: Phase,
    wish: Wish,
    /// We are killing it.
    killed: bool,
    /// Its kernel panicked.
    panicked: bool,
    /// QEMU got a signal that was not ours.
    signalled: bool,
    /// Its copy here is being ended because of a move.
    leaving: Option<OffReason>,
}

impl Life {
    /// What the handler is told.
    pub fn state(&self) -> DomainState {
        match self.phase {
            Phase::Absent => DomainState::Absent,
            Phase::Starting(_) => DomainState::Starting,
            Phase::Off(reason) => DomainState::Off(reason),
            Phase::Running | Phase::Paused(_) if self.wish != Wish::Live => DomainState::ShuttingDown,
            Phase::Running => DomainState::Running,
            Phase::Paused(reason) => DomainState::Paused(reason),
        }
    }

    /// There was no start, or it failed.
    pub fn is_absent(&self) -> bool {
        self.phase == Phase::Absent
    }

    /// QEMU runs, as far as is known.
    pub fn is_alive(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Paused(_))
    }

    /// How it ended, if it did.
    pub fn ended(&self) -> Option<OffReason> {
        match self.phase {
            Phase::Off(reason) => Some(reason),
            _ => None,
        }
    }

    /// The guest panicked and QEMU was left behind: somebody has to kill it.
    pub fn is_wreck(&self) -> bool {
        self.panicked && self.is_alive()
    }

    /// The end was what somebody asked for: the pod succeeded.
    pub fn ended_as_asked(&self) -> bool {
        match self.phase {
            Phase::Off(OffReason::Shutdown | OffReason::Saved | OffReason::Migrated) => true,
            Phase::Off(OffReason::Destroyed) => self.wish == Wish::EndNow,
            _ => false,
        }
    }

    /// A start begins. False when there is or was a guest already.
    pub fn begin_start(&mut self) -> bool {
        let absent = self.phase == Phase::Absent;
        if absent {
            self.phase = Phase::Starting(None);
        }
        absent
    }

    /// The start failed; another may follow.
    pub fn start_failed(&mut self) {
        if let Phase::Starting(_) = self.phase {
            self.phase = Phase::Absent;
        }
    }

    /// libvirt says that the guest was started.
    pub fn created(&mut self, paused: bool) {
        if let Phase::Starting(early_end) = self.phase {
            self.phase = if paused { Phase::Paused(PauseReason::User) } else { Phase::Running };
            if let Some(detail) = early_end {
                self.stopped(detail);
            }
        }
    }

    /// The guest is to power off; without time to do so it is killed.
    pub fn ask_to_end(&mut self, has_time: bool) {
        if self.wish == Wish::Live {
            self.wish = if has_time { Wish::PowerOff } else { Wish::EndNow };
        }
    }

    /// We are about to kill QEMU.
    pub fn about_to_kill(&mut self) {
        self.ask_to_end(false);
        self.killed = true;
    }

    /// The launcher gives up before there is a guest.
    pub fn give_up(&mut self) {
        if let Phase::Absent | Phase::Starting(_) = self.phase {
            self.phase = Phase::Off(OffReason::Failed);
        }
    }

    /// The copy here is about to be ended: the guest runs elsewhere, or may have and is lost.
    pub fn leave(&mut self, reason: OffReason) {
        self.leaving = Some(reason);
    }

    /// The copy here is gone.
    pub fn left(&mut self) {
        if let Some(reason) = self.leaving {
            self.phase = Phase::Off(reason);
        }
    }

    /// libvirt does not know the domain any more.
    pub fn vanished(&mut self) {
        if self.is_alive() {
            self.phase = Phase::Off(self.violent_end());
        }
    }

    /// An event of libvirt. What pauses and resumes mean is told by [`Life::observe`].
    pub fn happened(&mut self, event: Lifecycle) {
        match event {
            Lifecycle::Stopped(detail) => self.stopped(detail),
            Lifecycle::Shutdown(ShutdownDetail::Host) => self.signalled = true,
            Lifecycle::Shutdown(_) => self.signalled = false,
            Lifecycle::Crashed(CrashedDetail::Panicked) => self.panicked = true,
            _ => {}
        }
    }

    /// libvirt's answer to "what does it do?" while events flow. An end is left to its event, which knows more.
    pub fn observe(&mut self, state: State) {
        if !self.is_alive() {
            return;
        }
        match state {
            State::Running => self.phase = Phase::Running,
            State::Paused(PausedReason::Crashed) | State::Crashed => self.panicked = true,
            // It is on its way to off, or to a reset.
            State::Paused(PausedReason::ShuttingDown) | State::ShuttingDown => {}
            State::Paused(reason) => self.phase = Phase::Paused(pause_reason(reason)),
            State::PmSuspended => self.phase = Phase::Paused(PauseReason::Suspended),
            State::Shutoff(_) | State::Unknown => {}
        }
    }

    /// The same after events were lost: an end is believed as well.
    pub fn observe_after_gap(&mut self, state: State) {
        match state {
            State::Shutoff(reason) if self.is_alive() => self.stopped(stopped_detail(reason)),
            other => self.observe(other),
        }
    }

    fn stopped(&mut self, detail: StoppedDetail) {
        self.phase = match self.phase {
            Phase::Starting(_) => Phase::Starting(Some(detail)),
            Phase::Running | Phase::Paused(_) => self.off(detail).map_or(self.phase, Phase::Off),
            Phase::Absent | Phase::Off(_) => self.phase,
        };
    }

    fn off(&self, detail: StoppedDetail) -> Option<OffReason> {
        if self.leaving.is_some() {
            return self.leaving;
        }
        Some(match detail {
            _ if self.panicked => OffReason::Panicked,
            StoppedDetail::Shutdown if self.signalled => self.violent_end(),
            StoppedDetail::Shutdown => OffReason::Shutdown,
            StoppedDetail::Destroyed | StoppedDetail::Failed => self.violent_end(),
            StoppedDetail::Crashed => OffReason::Panicked,
            StoppedDetail::Migrated => OffReason::Migrated,
            StoppedDetail::Saved | StoppedDetail::FromSnapshot => OffReason::Saved,
            // The same guest in a new QEMU.
            StoppedDetail::Recreated => return None,
            StoppedDetail::Other(_) => OffReason::Unknown,
        })
    }

    fn violent_end(&self) -> OffReason {
        if let Some(reason) = self.leaving {
            reason
        } else if self.killed {
            OffReason::Destroyed
        } else {
            OffReason::Crashed
        }
    }
}

fn pause_reason(reason: PausedReason) -> PauseReason {
    match reason {
        PausedReason::User | PausedReason::StartingUp => PauseReason::User,
        PausedReason::IoError => PauseReason::IoError,
        PausedReason::Migration | PausedReason::Postcopy => PauseReason::Migration,
        PausedReason::PostcopyFailed => PauseReason::PostcopyFailed,
        _ => PauseReason::Other,
    }
}

/// A state's reason as the event would have told it. libvirt's state cannot tell a panic from a QEMU that vanished.
fn stopped_detail(reason: ShutoffReason) -> StoppedDetail {
    match reason {
        ShutoffReason::Shutdown => StoppedDetail::Shutdown,
        ShutoffReason::Destroyed => StoppedDetail::Destroyed,
        ShutoffReason::Migrated => StoppedDetail::Migrated,
        ShutoffReason::Saved => StoppedDetail::Saved,
        ShutoffReason::FromSnapshot => StoppedDetail::FromSnapshot,
        _ => StoppedDetail::Failed,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn running() -> Life {
        let mut life = Life::default();
        assert!(life.begin_start());
        life.created(false);
        life
    }

    fn end(mut life: Life, detail: StoppedDetail) -> (DomainState, bool) {
        life.happened(Lifecycle::Stopped(detail));
        (life.state(), life.ended_as_asked())
    }

    #[test]
    fn a_guest_starts_once() {
        let mut life = Life::default();
        assert_eq!(life.state(), DomainState::Absent);
        assert!(life.begin_start());
        assert!(!life.begin_start());
        assert_eq!(life.state(), DomainState::Starting);
        life.created(true);
        assert_eq!(life.state(), DomainState::Paused(PauseReason::User));
        assert!(!life.begin_start());
    }

    #[test]
    fn a_failed_start_can_be_repeated() {
        let mut life = Life::default();
        life.begin_start();
        life.happened(Lifecycle::Stopped(StoppedDetail::Failed));
        life.start_failed();
        assert_eq!(life.state(), DomainState::Absent);
        assert!(life.begin_start());
        life.created(false);
        assert_eq!(life.state(), DomainState::Running);
    }

    #[test]
    fn an_end_that_overtakes_the_start_is_not_lost() {
        let mut life = Life::default();
        life.begin_start();
        life.happened(Lifecycle::Stopped(StoppedDetail::Shutdown));
        assert_eq!(life.state(), DomainState::Starting);
        life.created(false);
        assert_eq!(life.state(), DomainState::Off(OffReason::Shutdown));
    }

    #[test]
    fn a_guest_that_powers_off_ended_as_asked() {
        assert_eq!(end(running(), StoppedDetail::Shutdown), (DomainState::Off(OffReason::Shutdown), true));
    }

    #[test]
    fn a_vanished_qemu_crashed_unless_we_killed_it() {
        assert_eq!(end(running(), StoppedDetail::Failed), (DomainState::Off(OffReason::Crashed), false));
        assert_eq!(end(running(), StoppedDetail::Destroyed), (DomainState::Off(OffReason::Crashed), false));
        let mut life = running();
        life.ask_to_end(true);
        life.about_to_kill();
        assert_eq!(end(life, StoppedDetail::Failed), (DomainState::Off(OffReason::Destroyed), false));
    }

    #[test]
    fn a_kill_without_grace_is_what_was_asked() {
        let mut life = running();
        life.ask_to_end(false);
        life.about_to_kill();
        assert_eq!(end(life, StoppedDetail::Destroyed), (DomainState::Off(OffReason::Destroyed), true));
    }

    #[test]
    fn a_guest_that_powers_off_while_it_is_being_killed_has_powered_off() {
        let mut life = running();
        life.ask_to_end(true);
        life.about_to_kill();
        assert_eq!(end(life, StoppedDetail::Shutdown), (DomainState::Off(OffReason::Shutdown), true));
    }

    #[test]
    fn a_signal_to_qemu_is_not_the_guests_wish() {
        let mut life = running();
        life.happened(Lifecycle::Shutdown(ShutdownDetail::Host));
        assert_eq!(end(life, StoppedDetail::Shutdown), (DomainState::Off(OffReason::Crashed), false));
        let mut life = running();
        life.about_to_kill();
        life.happened(Lifecycle::Shutdown(ShutdownDetail::Host));
        assert_eq!(end(life, StoppedDetail::Shutdown).0, DomainState::Off(OffReason::Destroyed));
    }

    #[test]
    fn a_panic_is_a_panic_whoever_kills_qemu() {
        assert_eq!(end(running(), StoppedDetail::Crashed), (DomainState::Off(OffReason::Panicked), false));
        let mut life = running();
        life.observe(State::Paused(PausedReason::Crashed));
        assert!(life.is_wreck());
        life.about_to_kill();
        assert_eq!(end(life, StoppedDetail::Destroyed), (DomainState::Off(OffReason::Panicked), false));
    }

    #[test]
    fn pauses_say_why() {
        let mut life = running();
        let expected = [
            (State::Paused(PausedReason::IoError), DomainState::Paused(PauseReason::IoError)),
            (State::Paused(PausedReason::Watchdog), DomainState::Paused(PauseReason::Other)),
            (State::PmSuspended, DomainState::Paused(PauseReason::Suspended)),
            (State::Paused(PausedReason::ShuttingDown), DomainState::Paused(PauseReason::Suspended)),
            (State::Running, DomainState::Running),
        ];
        for (state, told) in expected {
            life.observe(state);
            assert_eq!(life.state(), told, "{state:?}");
        }
        life.ask_to_end(true);
        assert_eq!(life.state(), DomainState::ShuttingDown);
    }

    #[test]
    fn an_end_is_left_to_its_event_unless_events_were_lost() {
        let mut life = running();
        life.observe(State::Shutoff(ShutoffReason::Crashed));
        assert_eq!(life.state(), DomainState::Running);
        life.observe_after_gap(State::Shutoff(ShutoffReason::Crashed));
        assert_eq!(life.state(), DomainState::Off(OffReason::Crashed));
        let mut life = running();
        life.vanished();
        assert_eq!(life.state(), DomainState::Off(OffReason::Crashed));
    }

    #[test]
    fn a_new_qemu_for_the_same_guest_is_no_end() {
        assert_eq!(end(running(), StoppedDetail::Recreated).0, DomainState::Running);
    }

    #[test]
    fn giving_up_before_the_start_is_a_failure() {
        let mut life = Life::default();
        life.give_up();
        assert_eq!((life.ended(), life.ended_as_asked()), (Some(OffReason::Failed), false));
    }

    #[test]
    fn a_guest_that_moved_away_ended_as_asked_however_its_copy_ended() {
        let mut life = running();
        life.leave(OffReason::Migrated);
        assert_eq!(life.state(), DomainState::Running);
        assert_eq!(end(life.clone(), StoppedDetail::Destroyed), (DomainState::Off(OffReason::Migrated), true));
        life.left();
        assert_eq!((life.ended(), life.ended_as_asked()), (Some(OffReason::Migrated), true));
        // QEMU had died before anybody knew that the guest runs elsewhere.
        let mut life = running();
        life.vanished();
        life.leave(OffReason::Migrated);
        life.left();
        assert_eq!(life.ended(), Some(OffReason::Migrated));
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Start,
        Created,
        Failed,
        Ask(bool),
        Kill,
        Stopped(i32),
        Observe(i32),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            Just(Step::Start),
            Just(Step::Created),
            Just(Step::Failed),
            any::<bool>().prop_map(Step::Ask),
            Just(Step::Kill),
            (0..8).prop_map(Step::Stopped),
            (0..15).prop_map(Step::Observe),
        ];
        prop::collection::vec(step, 0..30)
    }

    proptest! {
        #[test]
        fn off_is_for_ever_and_destroyed_only_by_us(steps in steps()) {
            let mut life = Life::default();
            let mut killed = false;
            let mut end = None;
            for step in steps {
                match step {
                    Step::Start => { life.begin_start(); }
                    Step::Created => life.created(false),
                    Step::Failed => life.start_failed(),
                    Step::Ask(has_time) => life.ask_to_end(has_time),
                    Step::Kill => { killed = true; life.about_to_kill(); }
                    Step::Stopped(detail) => life.happened(Lifecycle::Stopped(detail.into())),
                    Step::Observe(reason) => life.observe(State::Paused(reason.into())),
                }
                if let Some(end) = end {
                    prop_assert_eq!(life.ended(), Some(end));
                }
                end = life.ended();
                prop_assert!(killed || end != Some(OffReason::Destroyed));
            }
        }
    }
}
