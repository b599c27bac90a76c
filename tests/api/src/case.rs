//! What a case file says. Cases are data: a list of requests, without any expectation; the answers are recorded.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

/// One case: a conversation with the server in a namespace of its own.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Case {
    /// `area/name`, from the path of the file.
    #[serde(skip)]
    pub(crate) name: String,
    /// One line on what the case is about.
    pub(crate) about: String,
    /// Fixtures whose steps run first, unrecorded.
    #[serde(default)]
    pub(crate) setup: Vec<String>,
    /// Places in the answer that may differ from the reference.
    #[serde(default)]
    pub(crate) differs: Vec<Differs>,
    /// The conversation.
    pub(crate) steps: Vec<Step>,
}

/// A place where our answer may differ from the reference's, with the reason.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Differs {
    /// Pointer into the recorded answer, such as `/steps/1/body/message`; `*` stands for any one segment.
    pub(crate) path: String,
    /// Why it differs. Not read by the runner, but a case must say it.
    #[serde(rename = "why")]
    pub(crate) _why: String,
}

/// Steps that several cases begin with.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fixture {
    pub(crate) steps: Vec<Step>,
}

/// One request, or (`collect`) the answer of one that was started earlier.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Step {
    /// `METHOD path?query`. `${namespace}`, `${unique}` and saved variables are filled in here and in all other strings.
    pub(crate) request: Option<String>,
    /// The `Accept` header.
    pub(crate) accept: Option<String>,
    /// The `Content-Type` header; JSON when there is a body and nothing else is said.
    pub(crate) content_type: Option<String>,
    /// Short form of a patch's content type: `json`, `merge`, `strategic` or `apply`.
    pub(crate) patch: Option<PatchType>,
    /// Further request headers.
    pub(crate) headers: BTreeMap<String, String>,
    /// The body: sent as JSON, or as it stands when it is a string.
    pub(crate) body: Option<Value>,
    /// A body in hexadecimal, white space ignored.
    pub(crate) body_hex: Option<String>,
    /// How many characters `${padding}` in the body stands for.
    pub(crate) padding: usize,
    /// Who asks; the kubeconfig's user when absent.
    #[serde(rename = "as")]
    pub(crate) identity: Option<Identity>,
    /// Variables to take from the answer's body, by pointer.
    pub(crate) save: BTreeMap<String, String>,
    /// Repeat the request until the answer is like this.
    pub(crate) until: Option<Until>,
    /// Read the answer as a watch.
    pub(crate) watch: Option<Watch>,
    /// Start the watch, go on with the next steps, and read it at the step that collects this name.
    pub(crate) background: Option<String>,
    /// Collect a background watch.
    pub(crate) collect: Option<String>,
    /// Record only these parts of the body.
    pub(crate) only: Vec<String>,
    /// Parts of the body of which only the presence is recorded.
    pub(crate) blank: Vec<String>,
    /// Response headers to record besides the usual ones.
    pub(crate) record_headers: Vec<String>,
    /// Do not record this answer at all: a step that only prepares something.
    pub(crate) unrecorded: bool,
}

/// Patch content types by their short names.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchType {
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Apply => "application/apply-patch+yaml",
        }
    }
}

/// Who a request comes from.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum Identity {
    /// A user name to impersonate, or `anonymous` for no credentials at all.
    Name(String),
    /// A bearer token.
    Token {
        /// Usually a variable that an earlier step saved.
        token: String,
    },
    /// A user with groups to impersonate.
    User {
        /// The user name.
        user: String,
        /// Its groups.
        #[serde(default)]
        groups: Vec<String>,
    },
}

/// When an eventual thing has happened.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Until {
    /// The HTTP status to wait for.
    pub(crate) status: Option<u16>,
    /// Values to wait for in the body, by pointer; `null` waits for absence.
    pub(crate) body: BTreeMap<String, Value>,
    /// Places in the body that must be there, whatever they hold.
    pub(crate) present: Vec<String>,
    /// How long to wait; the recorded answer then is whatever came last.
    pub(crate) seconds: Option<u64>,
}

/// How much of a watch to read.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Watch {
    /// Stop after so many events; otherwise read until the server ends the watch.
    pub(crate) events: Option<usize>,
    /// Stop at the bookmark that ends the initial events.
    pub(crate) initial: bool,
    /// Record plain bookmarks too. They come when the server likes, so they are left out otherwise.
    pub(crate) keep_bookmarks: bool,
    /// Give up after so many seconds.
    pub(crate) seconds: Option<u64>,
}

/// The suite's directories: cases, fixtures and answers.
#[derive(Debug, Clone)]
pub(crate) struct Suite {
    root: PathBuf,
}

impl Suite {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// All cases whose name contains `filter`, in the order of their names.
    pub(crate) fn cases(&self, filter: Option<&str>) -> Result<Vec<Case>> {
        let mut cases = Vec::new();
        for area in sorted_entries(&self.root.join("cases"))? {
            for file in sorted_entries(&area)? {
                let name = format!("{}/{}", stem(&area), stem(&file));
                if filter.is_some_and(|wanted| !name.contains(wanted)) {
                    continue;
                }
                cases.push(Case { name, ..read_yaml(&file)? });
            }
        }
        Ok(cases)
    }

    pub(crate) fn fixture(&self, name: &str) -> Result<Fixture> {
        read_yaml(&self.root.join("fixtures").join(format!("{name}.yaml")))
    }

    pub(crate) fn answer_file(&self, case: &Case) -> PathBuf {
        self.root.join("answers").join(format!("{}.json", case.name))
    }
}

fn sorted_entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn read_yaml<T: serde::de::DeserializeOwned>(file: &Path) -> Result<T> {
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(&text, options).map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))
}
