//! What the volumes of a pod must look like.

use serde_json::Value;

use super::containers::Volumes;
use crate::strategy::check::{Errors, list, text};

const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// The kinds of volumes in the order in which they are checked.
const KINDS: &[&str] = &[
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "persistentVolumeClaim",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "downwardAPI",
    "fc",
    "azureFile",
    "configMap",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
    "projected",
    "csi",
    "ephemeral",
    "image",
];

/// Checks the volumes and returns the good ones.
pub(super) fn check<'v>(volumes: &'v Value, path: &str, errors: &mut Errors) -> Volumes<'v> {
    let mut good = Volumes::new();
    for (index, volume) in list(volumes).iter().enumerate() {
        let at = format!("{path}[{index}]");
        let mut wrong = Errors::default();
        sources(volume, &at, &mut wrong);
        wrong.label_name(&format!("{at}.name"), &volume["name"]);
        let name = text(&volume["name"]);
        if good.contains_key(name) {
            wrong.duplicate(format!("{at}.name"), &volume["name"]);
        }
        if wrong.is_empty() {
            good.insert(name, volume);
        }
        errors.extend(wrong.into_vec());
    }
    good
}

fn sources(volume: &Value, at: &str, errors: &mut Errors) {
    let mut found = false;
    let place = |kind: &str| KINDS.iter().position(|known| *known == kind).unwrap_or(KINDS.len());
    let mut given: Vec<_> = volume.as_object().into_iter().flatten().filter(|(kind, _)| *kind != "name").collect();
    given.sort_by_key(|(kind, _)| place(kind));
    for (kind, source) in given {
        let at = format!("{at}.{kind}");
        if found {
            errors.forbidden(at, "may not specify more than 1 volume type");
            continue;
        }
        found = true;
        source_errors(kind, source, &at, errors);
    }
    if !found {
        errors.required(at, "must specify a volume type");
    }
}

fn source_errors(kind: &str, source: &Value, at: &str, errors: &mut Errors) {
    let mut needs = |field: &str| {
        let missing = text(&source[field]).is_empty();
        if missing {
            errors.required(format!("{at}.{field}"), "");
        }
        missing
    };
    match kind {
        "emptyDir" => errors.not_negative_quantity(format!("{at}.sizeLimit"), &source["sizeLimit"]),
        "hostPath" => {
            let missing = needs("path");
            host_path(source, at, missing, errors);
        }
        "secret" => {
            needs("secretName");
            items(source, at, errors);
        }
        "configMap" => {
            needs("name");
            items(source, at, errors);
        }
        "persistentVolumeClaim" => {
            needs("claimName");
        }
        "csi" => {
            needs("driver");
        }
        "nfs" => {
            needs("server");
            needs("path");
        }
        "downwardAPI" => mode(&source["defaultMode"], &format!("{at}.defaultMode"), errors),
        "projected" => {
            mode(&source["defaultMode"], &format!("{at}.defaultMode"), errors);
            projections(source, at, errors);
        }
        _ => {}
    }
}

fn projections(source: &Value, at: &str, errors: &mut Errors) {
    for (index, projection) in list(&source["sources"]).iter().enumerate() {
        let at = format!("{at}.sources[{index}]");
        for kind in ["secret", "configMap"] {
            if !projection[kind].is_object() {
                continue;
            }
            if text(&projection[kind]["name"]).is_empty() {
                errors.required(format!("{at}.{kind}.name"), "");
            }
            items(&projection[kind], &format!("{at}.{kind}"), errors);
        }
        let token = &projection["serviceAccountToken"];
        if token.is_object() {
            let at = format!("{at}.serviceAccountToken");
            if token["expirationSeconds"].as_i64().is_some_and(|seconds| seconds < 600) {
                let why = "may not specify a duration less than 10 minutes";
                errors.invalid(format!("{at}.expirationSeconds"), &token["expirationSeconds"], why);
            }
            if text(&token["path"]).is_empty() {
                errors.required(format!("{at}.path"), "");
            }
        }
        if projection.as_object().is_none_or(serde_json::Map::is_empty) {
            errors.required(at, "must specify a volume projection source");
        }
    }
}

fn host_path(source: &Value, at: &str, missing: bool, errors: &mut Errors) {
    if missing {
        return;
    }
    if backsteps(text(&source["path"])) {
        errors.invalid(format!("{at}.path"), &source["path"], "must not contain '..'");
    }
    let kinds = ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    errors.one_of(format!("{at}.type"), &source["type"], &kinds);
}

fn items(source: &Value, at: &str, errors: &mut Errors) {
    mode(&source["defaultMode"], &format!("{at}.defaultMode"), errors);
    for (index, item) in list(&source["items"]).iter().enumerate() {
        let at = format!("{at}.items[{index}]");
        for field in ["key", "path"] {
            if text(&item[field]).is_empty() {
                errors.required(format!("{at}.{field}"), "");
            }
        }
        let path = text(&item["path"]);
        relative_path(path, &format!("{at}.path"), errors);
        if path.starts_with("..") && !path.starts_with("../") {
            errors.invalid(format!("{at}.path"), &item["path"], "must not start with '..'");
        }
        mode(&item["mode"], &format!("{at}.mode"), errors);
    }
}

fn mode(mode: &Value, at: &str, errors: &mut Errors) {
    if mode.as_i64().is_some_and(|mode| !(0..=0o777).contains(&mode)) {
        errors.invalid(at, mode, FILE_MODE);
    }
}

/// The path leads out of the place that it starts in.
pub(super) fn backsteps(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

/// Checks a path that must stay below the place that it starts in.
pub(super) fn relative_path(path: &str, at: &str, errors: &mut Errors) {
    if path.starts_with('/') {
        errors.invalid_text(at, path, "must be a relative path");
    }
    if backsteps(path) {
        errors.invalid_text(at, path, "must not contain '..'");
    }
}
