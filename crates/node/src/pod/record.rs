//! What is remembered on disk about a container.

use std::collections::BTreeMap;
use std::io;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::files;
use crate::layout::ContainerLayout;
use crate::process::ProcessIdentity;

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Termination {
    /// Exit code, or 128 and the signal.
    pub exit_code: i32,
    /// `Completed`, `Error`, `OOMKilled` …
    pub reason: String,
    /// Its last words.
    #[serde(default)]
    pub message: Option<String>,
    /// Began.
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    /// Ended.
    pub finished_at: Timestamp,
    /// The runtime's name of it.
    #[serde(default)]
    pub id: String,
}

/// Where a container is in its life.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum Stage {
    /// Not started yet.
    #[default]
    New,
    /// The runtime is being asked to make it; after a crash it may or may not have.
    Creating,
    /// Runs.
    Running {
        /// Its first process.
        process: ProcessIdentity,
        /// Since.
        started_at: Timestamp,
    },
    /// Ended.
    Ended(Termination),
}

/// One container.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ContainerRecord {
    /// Number of the present attempt; 0 is the first.
    pub attempt: u32,
    /// The runtime's name of the present attempt.
    #[serde(default)]
    pub id: String,
    /// The image's digest.
    #[serde(default)]
    pub image_id: String,
    /// Digests of the images that it has as volumes, by the volume's name.
    #[serde(default)]
    pub volume_images: BTreeMap<String, String>,
    /// What asks it to end.
    #[serde(default)]
    pub stop_signal: Option<String>,
    /// The present attempt.
    #[serde(default)]
    pub stage: Stage,
    /// The attempt before.
    #[serde(default)]
    pub previous: Option<Termination>,
    /// Ends in a row that came soon after the start.
    #[serde(default)]
    pub quick_ends: u32,
}

impl ContainerRecord {
    /// Reads the record; a container without one is new.
    pub fn read(layout: &ContainerLayout) -> Option<Self> {
        files::read_json(&layout.record())
    }

    /// Writes the record.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn write(&self, layout: &ContainerLayout) -> io::Result<()> {
        files::write_json(&layout.record(), self)
    }

    /// The runtime's name of an attempt.
    pub fn id_of(uid: &str, container: &str, attempt: u32) -> String {
        format!("{uid}-{container}-{attempt}")
    }

    /// It is running.
    pub fn is_running(&self) -> bool {
        matches!(self.stage, Stage::Running { .. })
    }

    /// How it ended.
    pub fn ended(&self) -> Option<&Termination> {
        match &self.stage {
            Stage::Ended(termination) => Some(termination),
            _ => None,
        }
    }
}
