//! Bodies of requests, parsed. They may be empty; what they say must be understood.

use std::collections::BTreeMap;

use ferrovirt_api::values::Duration;
use ferrovirt_apiserver::status::{ApiError, ApiResult};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// File systems that nobody thaws are thawed after five minutes.
const USUAL_FREEZE_SECONDS: u64 = 300;

/// `StartOptions`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StartOptions {
    /// The guest is created, but its CPUs do not run.
    pub paused: bool,
    /// `All` checks the request without acting on it.
    pub dry_run: Vec<String>,
}

/// `StopOptions`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StopOptions {
    /// Seconds that the guest has to shut down, instead of what its spec says.
    pub grace_period: Option<i64>,
    /// `All` checks the request without acting on it.
    pub dry_run: Vec<String>,
}

/// `RestartOptions`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RestartOptions {
    /// 0 restarts without waiting for the guest's consent.
    pub grace_period_seconds: Option<i64>,
    /// `All` checks the request without acting on it.
    pub dry_run: Vec<String>,
}

/// `MigrateOptions`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MigrateOptions {
    /// More labels that the target node must have.
    pub added_node_selector: Option<BTreeMap<String, String>>,
    /// `All` checks the request without acting on it.
    pub dry_run: Vec<String>,
}

/// `EvacuateCancelOptions`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CancelOptions {
    /// The node that the guest is marked to leave; whichever it is when empty.
    pub evacuation_node_name: String,
    /// `All` checks the request without acting on it.
    pub dry_run: Vec<String>,
}

/// `PauseOptions` and `UnpauseOptions`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CommandOptions {
    /// `All` checks the request without acting on it.
    pub dry_run: Vec<String>,
}

/// `FreezeUnfreezeTimeout`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FreezeOptions {
    unfreeze_timeout: Option<Duration>,
    /// `All` checks the request without acting on it.
    pub dry_run: Vec<String>,
}

impl FreezeOptions {
    /// Seconds after which file systems thaw by themselves; 0 for never.
    pub(super) fn seconds(&self) -> u64 {
        self.unfreeze_timeout.as_ref().map_or(USUAL_FREEZE_SECONDS, |timeout| timeout.to_std().as_secs())
    }
}

/// The members of a body that every kind of options may have, and that say nothing here.
const TYPE: [&str; 2] = ["apiVersion", "kind"];

/// Options in a body, JSON or YAML. `known` lists their members: a misspelt one must not be taken for a missing one.
pub(super) fn parse<T: DeserializeOwned + Default>(body: &[u8], known: &[&str]) -> ApiResult<T> {
    let wrong = |why: String| ApiError::bad_request(format!("Can not unmarshal Request body to struct, error: {why}"));
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(T::default());
    }
    let value = ferrovirt_machinery::json::parse_yaml(body).map_err(|error| wrong(error.to_string()))?.value;
    if value.is_null() {
        return Ok(T::default());
    }
    let Some(members) = value.as_object() else { return Err(wrong("the body must be an object".to_owned())) };
    let unknown = members.keys().find(|name| !known.contains(&name.as_str()) && !TYPE.contains(&name.as_str()));
    if let Some(unknown) = unknown {
        return Err(wrong(format!("there is no option \"{unknown}\": use {}", known.join(", "))));
    }
    // Go writes empty lists and maps as null.
    let given = members.iter().filter(|(_, value)| !value.is_null());
    let given: serde_json::Map<_, _> = given.map(|(name, value)| (name.clone(), value.clone())).collect();
    serde_json::from_value(given.into()).map_err(|error| wrong(error.to_string()))
}

/// Whether nothing must be done.
pub(super) fn is_dry_run(words: &[String]) -> ApiResult<bool> {
    match words.iter().find(|word| *word != "All") {
        Some(word) => Err(ApiError::bad_request(format!("dryRun is \"{word}\": use [\"All\"]"))),
        None => Ok(!words.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused<T: DeserializeOwned + Default + std::fmt::Debug>(body: &[u8], known: &[&str]) -> (u16, String) {
        let error = parse::<T>(body, known).unwrap_err();
        (error.code().as_u16(), error.message().to_owned())
    }

    #[test]
    fn bodies_may_be_empty_but_not_nonsense() {
        for empty in [&b""[..], b" \n", b"null", b"{}", b"{\"kind\": \"StartOptions\", \"dryRun\": null}"] {
            assert_eq!(parse::<StartOptions>(empty, &["paused", "dryRun"]).unwrap(), StartOptions::default());
        }
        for wrong in [&b"[]"[..], b"{", b"7", b"{\"paused\": \"yes\"}", b"\xff\xfe"] {
            assert_eq!(refused::<StartOptions>(wrong, &["paused"]).0, 400, "{wrong:?}");
        }
    }

    #[test]
    fn yaml_is_understood() {
        let options: StartOptions = parse(b"paused: true\ndryRun: [All]\n", &["paused", "dryRun"]).unwrap();
        assert!(options.paused && is_dry_run(&options.dry_run).unwrap());
    }

    #[test]
    fn misspelt_options_are_refused() {
        let (code, message) = refused::<StopOptions>(b"{\"gracePeriodSeconds\": 0}", &["gracePeriod", "dryRun"]);
        assert_eq!(code, 400);
        assert!(message.ends_with("there is no option \"gracePeriodSeconds\": use gracePeriod, dryRun"), "{message}");
    }

    #[test]
    fn a_dry_run_is_all_or_nothing() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert!(!is_dry_run(&[]).unwrap());
        assert!(is_dry_run(&words(&["All"])).unwrap());
        assert_eq!(is_dry_run(&words(&["Some"])).unwrap_err().code(), 400);
    }

    #[test]
    fn frozen_file_systems_thaw_after_a_while() {
        let seconds = |body: &[u8]| parse::<FreezeOptions>(body, &["unfreezeTimeout"]).map(|options| options.seconds());
        assert_eq!(seconds(b"{}").unwrap(), 300);
        assert_eq!(seconds(b"{\"unfreezeTimeout\": \"1m30s\"}").unwrap(), 90);
        assert_eq!(seconds(b"{\"unfreezeTimeout\": \"soon\"}").unwrap_err().code(), 400);
    }
}
