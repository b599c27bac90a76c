//! cloud-init seeds as files: NoCloud and ConfigDrive. Pure, apart from reading what mounted secrets hold.

use std::collections::BTreeMap;
use std::io::Read;

use ferrovirt_launcher_rpc::disks::{CloudInitLayout, CloudInitSeed, SeedText};
use serde_json::{Map, Value, json};

use crate::error::{StorageError, io_error};
use crate::iso::{MAX_TOTAL, MediumProblem};
use crate::tree::{Links, Tree};

/// The label that cloud-init looks for.
pub(crate) fn label(layout: CloudInitLayout) -> &'static str {
    match layout {
        CloudInitLayout::NoCloud => "cidata",
        CloudInitLayout::ConfigDrive => "config-2",
    }
}

/// The files of a seed.
pub(crate) fn files(volume: &str, seed: &CloudInitSeed) -> Result<BTreeMap<String, Vec<u8>>, StorageError> {
    let parts = Parts {
        user: seed.user_data.as_ref().map(|text| read(volume, text)).transpose()?,
        network: seed.network_data.as_ref().map(|text| read(volume, text)).transpose()?,
        keys: public_keys(volume, &seed.public_key_directories)?,
        devices: match &seed.devices {
            Some(text) => Some(
                serde_json::from_str(text)
                    .map_err(|source| StorageError::Devices { volume: volume.to_owned(), source })?,
            ),
            None => None,
        },
    };
    Ok(match seed.layout {
        CloudInitLayout::NoCloud => no_cloud(seed, parts),
        CloudInitLayout::ConfigDrive => config_drive(seed, parts),
    })
}

/// What a seed refers to, read.
struct Parts {
    user: Option<Vec<u8>>,
    network: Option<Vec<u8>>,
    keys: Map<String, Value>,
    devices: Option<Value>,
}

/// cloud-init takes a NoCloud seed only with both `user-data` and `meta-data`, so an empty `user-data` stands for none.
fn no_cloud(seed: &CloudInitSeed, parts: Parts) -> BTreeMap<String, Vec<u8>> {
    let mut meta = Map::new();
    meta.insert("instance-id".into(), json!(seed.instance_id));
    meta.insert("local-hostname".into(), json!(seed.hostname));
    if let Some(kind) = &seed.instance_type {
        meta.insert("instance-type".into(), json!(kind));
    }
    if !parts.keys.is_empty() {
        meta.insert("public-keys".into(), Value::Object(parts.keys));
    }
    let mut files = BTreeMap::from([
        ("meta-data".to_owned(), Value::Object(meta).to_string().into_bytes()),
        ("user-data".to_owned(), parts.user.unwrap_or_default()),
    ]);
    files.extend(parts.network.map(|network| ("network-config".to_owned(), network)));
    files
}

fn config_drive(seed: &CloudInitSeed, parts: Parts) -> BTreeMap<String, Vec<u8>> {
    let mut meta = Map::new();
    meta.insert("instance_id".into(), json!(seed.instance_id));
    meta.insert("local_hostname".into(), json!(seed.hostname));
    meta.insert("hostname".into(), json!(seed.hostname));
    if let Some(uuid) = &seed.uuid {
        meta.insert("uuid".into(), json!(uuid));
    }
    if let Some(kind) = &seed.instance_type {
        meta.insert("instance_type".into(), json!(kind));
    }
    if !parts.keys.is_empty() {
        meta.insert("public_keys".into(), Value::Object(parts.keys));
    }
    if let Some(devices) = parts.devices {
        meta.insert("devices".into(), devices);
    }
    let at = |name: &str| format!("openstack/latest/{name}");
    let mut files = BTreeMap::from([(at("meta_data.json"), Value::Object(meta).to_string().into_bytes())]);
    files.extend(parts.user.map(|user| (at("user_data"), user)));
    files.extend(parts.network.map(|network| (at("network_data.json"), network)));
    files
}

fn read(volume: &str, text: &SeedText) -> Result<Vec<u8>, StorageError> {
    match text {
        SeedText::Inline(text) => Ok(text.clone().into_bytes()),
        SeedText::File { directory, keys } => {
            let tree = Tree::open(volume, directory, Links::Inside)?;
            let names = tree.names("")?;
            let Some(key) = keys.iter().find(|key| names.contains(key)) else {
                return Err(StorageError::NoSeedKey { volume: volume.to_owned(), keys: keys.join(" or ") });
            };
            read_file(volume, &tree, key)
        }
    }
}

fn read_file(volume: &str, tree: &Tree<'_>, name: &str) -> Result<Vec<u8>, StorageError> {
    let (file, _) = tree.plain_file(name)?;
    let mut content = Vec::new();
    let count = file.take(MAX_TOTAL + 1).read_to_end(&mut content);
    if count.map_err(|error| io_error(volume, &tree.path(name), "read", error))? as u64 > MAX_TOTAL {
        return Err(StorageError::Medium { volume: volume.to_owned(), problem: MediumProblem::TooLarge });
    }
    Ok(content)
}

/// One key per line of each file, numbered.
fn public_keys(volume: &str, directories: &[String]) -> Result<Map<String, Value>, StorageError> {
    let mut keys = Map::new();
    for directory in directories {
        let tree = Tree::open(volume, directory, Links::Inside)?;
        for name in tree.names("")?.iter().filter(|name| !name.starts_with("..")) {
            let text = String::from_utf8(read_file(volume, &tree, name)?)
                .map_err(|_| StorageError::NotText { volume: volume.to_owned(), what: tree.path(name) })?;
            for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
                keys.insert(keys.len().to_string(), json!(line));
            }
        }
    }
    Ok(keys)
}
