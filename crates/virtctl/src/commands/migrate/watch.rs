//! Following a move to its end: the migration's object tells the phase, the guest's how far it is.

use std::sync::Mutex;
use std::time::Duration;

use anyhow::bail;
use serde_json::Value;

use super::view::View;
use super::{MIGRATIONS, phase};
use crate::progress::Progress;
use crate::session::Session;
use crate::target::Kind;
use crate::until::{until, within};

/// How a move ended.
enum End {
    Moved,
    Failed,
    Cancelled,
}

/// Shows how the move goes. One that failed or was cancelled is an error.
pub(super) async fn watch(session: &Session, guest: &str, migration: &str, patience: Duration) -> anyhow::Result<()> {
    let shown = Shown::new(guest);
    let work = async {
        tokio::select! {
            end = follow_migration(session, migration, &shown) => end,
            end = follow_guest(session, guest, &shown) => end,
        }
    };
    let end = shown.progress.during(within(patience, || format!("the migration of {guest}"), work)).await?;
    let view = shown.view();
    match end {
        End::Moved => println!("VM {guest} moved{}", view.moved()),
        End::Cancelled => bail!("the migration {migration} was cancelled"),
        End::Failed => match view.failure() {
            Some(reason) => bail!("the migration {migration} failed: {reason}"),
            None => bail!("the migration {migration} failed: {}", last_words(session, migration).await),
        },
    }
    Ok(())
}

async fn follow_migration(session: &Session, name: &str, shown: &Shown<'_>) -> anyhow::Result<End> {
    until(session, &Session::collection(&session.namespace, MIGRATIONS), name, |migration| {
        let Some(migration) = migration else { return Ok(Some(End::Cancelled)) };
        shown.migration(migration);
        Ok(match phase(migration) {
            "Succeeded" => Some(End::Moved),
            "Failed" => Some(End::Failed),
            _ => None,
        })
    })
    .await
}

/// Goes on until the migration's object has the last word.
async fn follow_guest(session: &Session, name: &str, shown: &Shown<'_>) -> anyhow::Result<End> {
    until(session, &Session::collection(&session.namespace, Kind::Guest.resource()), name, |guest| {
        if let Some(guest) = guest {
            shown.guest(&guest["status"]["migrationState"]);
        }
        Ok(None)
    })
    .await
}

/// Why a move failed that never got so far that the guest's object could tell.
async fn last_words(session: &Session, migration: &str) -> String {
    let only = format!("fieldSelector=involvedObject.name%3D{migration},type%3DWarning");
    let events = session.get(&format!("/api/v1/namespaces/{}/events?{only}", session.namespace)).await;
    let events = events.unwrap_or_default();
    let newest = events["items"].as_array().and_then(|events| {
        events.iter().max_by_key(|event| event["lastTimestamp"].as_str().unwrap_or_default().to_owned())
    });
    let words = newest.and_then(|event| event["message"].as_str());
    words.unwrap_or("no reason is given; \"virtctl get vmim -o yaml\" shows it whole").to_owned()
}

/// What is on the screen.
struct Shown<'a> {
    guest: &'a str,
    progress: Progress,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    uid: String,
    /// What the guest's object says about a move, of whatever migration.
    record: Value,
    view: View,
}

impl Known {
    /// The guest's record counts while the move goes on, if it is about this one: either object may be seen first.
    fn settle(&mut self) {
        let is_over = matches!(self.view.phase.as_str(), "Succeeded" | "Failed");
        if !is_over && !self.uid.is_empty() && self.record["migrationUid"] == self.uid.as_str() {
            self.view.state = self.record.clone();
        }
    }
}

impl<'a> Shown<'a> {
    fn new(guest: &'a str) -> Self {
        let progress = Progress::new(format!("{guest}: waiting for its migration"));
        Self { guest, progress, known: Mutex::default() }
    }

    fn view(&self) -> View {
        self.known.lock().map(|known| known.view.clone()).unwrap_or_default()
    }

    fn migration(&self, migration: &Value) {
        self.change(|known| {
            known.uid = migration["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            known.view.phase = phase(migration).to_owned();
            // The last record of a move; until then, the guest's is newer.
            let copy = &migration["status"]["migrationState"];
            if matches!(phase(migration), "Succeeded" | "Failed") && copy.is_object() {
                known.view.state = copy.clone();
            }
        });
    }

    fn guest(&self, record: &Value) {
        self.change(|known| known.record = record.clone());
    }

    fn change(&self, change: impl FnOnce(&mut Known)) {
        let Ok(mut known) = self.known.lock() else { return };
        let before = known.view.clone();
        change(&mut known);
        known.settle();
        let view = &known.view;
        if self.progress.is_live() {
            self.progress.say(view.live(self.guest));
        } else if view.milestone() != before.milestone() {
            self.progress.say(view.plain(self.guest));
        }
    }
}
