//! Run strategies: what a machine becomes after each thing that can happen to it, as a table.

use anyhow::{Result, bail, ensure};
use blackbox::cluster::wait;
use blackbox::console::Console;
use blackbox::guest::Guest;
use blackbox::manifest::Manifest;
use serde_json::{Value, json};

use crate::cases::Case;
use crate::machine::Machine;
use crate::stage::Stage;

/// How a machine is before something happens.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// Its guest runs.
    Running,
    /// It was never started.
    NeverStarted,
    /// Its guest has powered itself off.
    PoweredOff,
    /// It was told to halt, and its guest does not listen.
    Stopping,
}

/// What happens.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Event {
    Shutdown,
    Crash,
    Start,
    Stop,
    Restart,
    DeleteGuest,
    DeletePod,
}

/// What it becomes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    /// Another guest runs.
    Another,
    /// There is no guest.
    Down,
    /// The guest's object stays, in this phase.
    Final(&'static str),
    /// The request was refused with a conflict and these words; all is as before.
    Refused(&'static str),
}

/// `(strategy, before, event, after, strategy after)`
type Row = (&'static str, Before, Event, After, &'static str);

const TABLE: &[Row] = {
    use After::*;
    use Before::*;
    use Event::*;
    &[
        ("Always", Running, Shutdown, Another, "Always"),
        ("Always", Running, Crash, Another, "Always"),
        ("Always", Running, Start, Refused("VM is already running"), "Always"),
        ("Always", Running, Stop, Down, "Halted"),
        ("Always", Running, Restart, Another, "Always"),
        ("Always", Running, DeleteGuest, Another, "Always"),
        ("Always", Running, DeletePod, Another, "Always"),
        ("RerunOnFailure", Running, Shutdown, Down, "RerunOnFailure"),
        ("RerunOnFailure", Running, Crash, Another, "RerunOnFailure"),
        ("RerunOnFailure", Running, Start, Refused("VM is already running"), "RerunOnFailure"),
        ("RerunOnFailure", PoweredOff, Start, Another, "RerunOnFailure"),
        ("RerunOnFailure", Running, Stop, Down, "RerunOnFailure"),
        ("RerunOnFailure", Running, Restart, Another, "RerunOnFailure"),
        ("RerunOnFailure", Running, DeleteGuest, Down, "RerunOnFailure"),
        ("RerunOnFailure", Running, DeletePod, Another, "RerunOnFailure"),
        ("Manual", Running, Shutdown, Final("Succeeded"), "Manual"),
        ("Manual", Running, Crash, Final("Failed"), "Manual"),
        ("Manual", NeverStarted, Start, Another, "Manual"),
        ("Manual", PoweredOff, Start, Another, "Manual"),
        ("Manual", Running, Stop, Down, "Manual"),
        ("Manual", Running, Restart, Another, "Manual"),
        ("Manual", Running, DeleteGuest, Down, "Manual"),
        ("Manual", Running, DeletePod, Final("Failed"), "Manual"),
        ("Halted", Stopping, Shutdown, Down, "Halted"),
        ("Halted", Stopping, Crash, Down, "Halted"),
        ("Halted", NeverStarted, Start, Another, "Always"),
        ("Halted", NeverStarted, Stop, Refused("VM is not running"), "Halted"),
        ("Halted", NeverStarted, Restart, Refused("does not support manual restart requests"), "Halted"),
        ("Halted", Stopping, DeleteGuest, Down, "Halted"),
        ("Halted", Stopping, DeletePod, Down, "Halted"),
        ("Once", Running, Shutdown, Final("Succeeded"), "Once"),
        ("Once", Running, Crash, Final("Failed"), "Once"),
        ("Once", Running, Start, Refused("VM is already running"), "Once"),
        ("Once", PoweredOff, Start, Refused("does not support manual start requests"), "Once"),
        ("Once", Running, Stop, Down, "Halted"),
        ("Once", Running, Restart, Refused("does not support manual restart requests"), "Once"),
        ("Once", Running, DeleteGuest, Another, "Once"),
        ("Once", Running, DeletePod, Final("Failed"), "Once"),
    ]
};

pub(super) fn cases() -> Vec<Case> {
    TABLE.iter().map(|row| Case::new(&name(row), &about(row), move |stage| check(stage, row))).collect()
}

fn name((strategy, before, event, ..): &Row) -> String {
    let strategy = match *strategy {
        "RerunOnFailure" => "rerun".to_owned(),
        other => other.to_lowercase(),
    };
    let before = if *before == Before::PoweredOff { "off-" } else { "" };
    format!("strategy/{strategy}-{before}{}", event.name())
}

fn about((strategy, before, event, after, then): &Row) -> String {
    let before = match before {
        Before::Running => "that runs",
        Before::NeverStarted => "that was never started",
        Before::PoweredOff => "whose guest has powered off",
        Before::Stopping => "that is stopping",
    };
    let after = match after {
        After::Another => "runs with another guest".to_owned(),
        After::Down => "has no guest".to_owned(),
        After::Final(phase) => format!("keeps its guest as {phase}"),
        After::Refused(_) => "refuses and is as before".to_owned(),
    };
    format!("A machine with {strategy} {before}, after {}: {after}, and is {then}.", event.name())
}

impl Event {
    fn name(self) -> &'static str {
        match self {
            Self::Shutdown => "shutdown",
            Self::Crash => "crash",
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Restart => "restart",
            Self::DeleteGuest => "delete-vmi",
            Self::DeletePod => "delete-pod",
        }
    }

    /// The guest itself does it, so it has to have booted.
    fn by_the_guest(self) -> bool {
        matches!(self, Self::Shutdown | Self::Crash)
    }
}

async fn check(stage: Stage, row: &Row) -> Result<()> {
    let (strategy, before, event, after, then) = row;
    // The console stays open to the end: what was typed last might be lost with it.
    let (machine, old, mut console) = prepare(&stage, strategy, *before, *event).await?;
    let refusal = happen(&machine, *event, console.as_mut(), *after).await?;
    let uid = old.as_ref().map_or("", |guest| guest.uid.as_str());
    match after {
        After::Another => {
            let guest = machine.running_but(uid).await?;
            one_pod(&guest).await?;
            machine.stays(&guest.uid, "Running", "Running").await?;
        }
        After::Down => {
            machine.stopped().await?;
            machine.stays("", "", "Stopped").await?;
        }
        After::Final(phase) => {
            let guest = machine.guest().await?;
            ensure!(guest.uid == uid, "it has another guest");
            guest.reach(phase, 60).await?;
            machine.reach("Stopped", 30).await?;
            machine.stays(uid, phase, "Stopped").await?;
        }
        After::Refused(words) => {
            let Some(answer) = refusal else { bail!("nothing was asked for") };
            crate::machine::expect_refusal(event.name(), &answer, 409, words)?;
            match before {
                Before::Running => machine.stays(uid, "Running", "Running").await?,
                Before::PoweredOff => machine.stays(uid, "Succeeded", "Stopped").await?,
                Before::NeverStarted | Before::Stopping => machine.stays("", "", "Stopped").await?,
            }
        }
    }
    let strategy = machine.strategy().await?;
    ensure!(strategy == *then, "its strategy is {strategy}, not {then}");
    Ok(())
}

/// Brings a machine to where the event can happen. The console is there where the guest has to do something.
async fn prepare(
    stage: &Stage,
    strategy: &str,
    before: Before,
    event: Event,
) -> Result<(Machine, Option<Guest>, Option<Console>)> {
    // A guest that was not given time to boot does not listen to ACPI: it should not be waited for.
    let grace = if before == Before::Stopping { 180 } else { 1 };
    let manifest = Manifest::kernel("machine")
        .with("/spec/terminationGracePeriodSeconds", json!(grace))
        .with("/spec/domain/devices/panicDevices", json!([{"model": "isa"}]));
    let first = if before == Before::Stopping { "Always" } else { strategy };
    let machine = stage.create(first, &manifest).await?;
    if matches!(strategy, "Manual" | "Halted") && before != Before::Stopping {
        machine.reach("Stopped", 30).await?;
        machine.stays("", "", "Stopped").await?;
        if before == Before::NeverStarted {
            return Ok((machine, None, None));
        }
        machine.accept("start", &Value::Null).await?;
    }
    if before == Before::Running && !event.by_the_guest() {
        let guest = machine.running().await?;
        return Ok((machine, Some(guest), None));
    }
    let (guest, mut console) = machine.login().await?;
    match before {
        Before::Running | Before::NeverStarted => {}
        Before::PoweredOff => {
            console.send("poweroff -f\n").await?;
            machine.reach("Stopped", 60).await?;
        }
        Before::Stopping => {
            console.run("ignore-acpi").await?;
            machine.patch(&json!({"spec": {"runStrategy": "Halted"}})).await?;
            machine.reach("Stopping", 30).await?;
        }
    }
    Ok((machine, Some(guest), Some(console)))
}

/// Lets the event happen; a request that should be refused returns its answer.
async fn happen(
    machine: &Machine,
    event: Event,
    console: Option<&mut Console>,
    after: After,
) -> Result<Option<blackbox::cluster::Answer>> {
    match (event, console) {
        (Event::Shutdown, Some(console)) => console.send("poweroff -f\n").await?,
        (Event::Crash, Some(console)) => console.send("panic\n").await?,
        (Event::Shutdown | Event::Crash, None) => bail!("nobody is logged in"),
        (Event::DeleteGuest, _) => machine.guest().await?.delete().await?,
        // By force: given time, a guest that has booted would power off, and one that has not would be killed.
        (Event::DeletePod, _) => machine.delete_pod(true).await?,
        (Event::Start | Event::Stop | Event::Restart, _) if matches!(after, After::Refused(_)) => {
            return Ok(Some(machine.ask(event.name(), &Value::Null).await?));
        }
        (Event::Start | Event::Stop | Event::Restart, _) => machine.accept(event.name(), &Value::Null).await?,
    }
    if event == Event::DeleteGuest && after == After::Down {
        // A guest that is stopping already is not asked a second time: it goes when it listens, or is told more firmly.
        if machine.strategy().await? == "Halted" {
            machine.accept("stop", &json!({"gracePeriod": 0})).await?;
        }
    }
    Ok(None)
}

/// Waits until the guest's pod is the only one.
async fn one_pod(guest: &Guest) -> Result<()> {
    let path = guest.scene.path("/api/v1", "pods");
    wait("the old guest's pod to be gone", 60, || async {
        let pods = guest.scene.cluster.get(&path).await?;
        Ok((pods["items"].as_array().map_or(0, Vec::len) == 1).then_some(()))
    })
    .await?;
    ensure!(guest.pod().await?.is_some(), "the only pod is not the new guest's");
    Ok(())
}
