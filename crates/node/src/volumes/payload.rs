//! Files that come from the API: made up without IO, then put into place all at once.
//!
//! ```text
//! <volume>/key        -> ..data/key
//! <volume>/..data     -> ..1731722400.5      replaced by a rename, so a reader never sees half of an update
//! <volume>/..1731722400.5/key
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Component, Path, PathBuf};

use ferrovirt_kubernetes::{ConfigMap, Pod, Secret};
use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, KeyToPath};

use crate::oci::environment::{PodFacts, pod_field, resource_field};

/// Mode of files when nothing else is said.
pub const DEFAULT_MODE: u32 = 0o644;
/// The link that is replaced.
const DATA: &str = "..data";

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayloadFile {
    /// Content.
    pub content: Vec<u8>,
    /// Permissions.
    pub mode: u32,
}

/// Files by path.
pub type Payload = BTreeMap<String, PayloadFile>;

/// Why a file cannot be made up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// The object is not there.
    #[error("{kind} {name:?} not found; create it, or mark it optional")]
    Object {
        /// `configmap` or `secret`.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// The object lacks a key.
    #[error("{kind} {name:?} has no key {key:?}")]
    Key {
        /// `configmap` or `secret`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// The key.
        key: String,
    },
    /// A path leads out of the volume.
    #[error("path {0:?} leads out of the volume")]
    Path(String),
    /// A field that is not served.
    #[error("this node knows no field {0}")]
    Field(String),
}

fn mode(file: Option<i32>, default: Option<i32>) -> u32 {
    file.or(default).and_then(|mode| u32::try_from(mode).ok()).map_or(DEFAULT_MODE, |mode| mode & 0o777)
}

/// Plain names only; `..` at the front is where links of ours are.
fn checked(path: &str) -> Result<String, PayloadError> {
    let plain = !path.is_empty()
        && !path.starts_with("..")
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    if plain { Ok(path.to_owned()) } else { Err(PayloadError::Path(path.to_owned())) }
}

/// Keys of an object as files: all of them, or those that are listed.
pub fn from_keys(
    kind: &'static str,
    name: &str,
    data: &BTreeMap<String, Vec<u8>>,
    items: Option<&[KeyToPath]>,
    default_mode: Option<i32>,
    optional: bool,
) -> Result<Payload, PayloadError> {
    let mut payload = Payload::new();
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        for (key, content) in data {
            let file = PayloadFile { content: content.clone(), mode: mode(None, default_mode) };
            payload.insert(checked(key)?, file);
        }
        return Ok(payload);
    };
    for item in items {
        match data.get(&item.key) {
            Some(content) => {
                let file = PayloadFile { content: content.clone(), mode: mode(item.mode, default_mode) };
                payload.insert(checked(&item.path)?, file);
            }
            None if optional => {}
            None => return Err(PayloadError::Key { kind, name: name.to_owned(), key: item.key.clone() }),
        }
    }
    Ok(payload)
}

/// Fields of the pod as files.
pub fn from_fields(
    pod: &Pod,
    facts: &PodFacts,
    items: &[DownwardAPIVolumeFile],
    default_mode: Option<i32>,
) -> Result<Payload, PayloadError> {
    let mut payload = Payload::new();
    for item in items {
        let content = match (&item.field_ref, &item.resource_field_ref) {
            (Some(field), _) => {
                pod_field(pod, facts, &field.field_path).ok_or_else(|| PayloadError::Field(field.field_path.clone()))?
            }
            (None, Some(field)) => {
                let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
                let mut named = containers.filter(|container| Some(&container.name) == field.container_name.as_ref());
                let value = named.next().and_then(|container| resource_field(container, facts, field));
                value.ok_or_else(|| PayloadError::Field(field.resource.clone()))?
            }
            (None, None) => continue,
        };
        let file = PayloadFile { content: content.into_bytes(), mode: mode(item.mode, default_mode) };
        payload.insert(checked(&item.path)?, file);
    }
    Ok(payload)
}

/// A token as a file.
pub fn from_token(path: &str, token: String, default_mode: Option<i32>) -> Result<Payload, PayloadError> {
    let file = PayloadFile { content: token.into_bytes(), mode: mode(None, default_mode) };
    Ok(Payload::from([(checked(path)?, file)]))
}

/// All of a config map's data as bytes.
pub fn config_map_data(map: ConfigMap) -> BTreeMap<String, Vec<u8>> {
    let text = map.0.data.unwrap_or_default().into_iter().map(|(key, text)| (key, text.into_bytes()));
    let binary = map.0.binary_data.unwrap_or_default().into_iter().map(|(key, bytes)| (key, bytes.0));
    text.chain(binary).collect()
}

/// All of a secret's data as bytes.
pub fn secret_data(secret: Secret) -> BTreeMap<String, Vec<u8>> {
    secret.0.data.unwrap_or_default().into_iter().map(|(key, bytes)| (key, bytes.0)).collect()
}

/// Puts the files into `directory`, unless they are there already.
///
/// # Errors
/// When the file system refuses.
pub fn write(directory: &Path, payload: &Payload, group: Option<u32>) -> io::Result<()> {
    let present = fs::read_link(directory.join(DATA)).ok();
    if let Some(present) = &present
        && is_same(&directory.join(present), payload)
    {
        return Ok(());
    }
    let now = jiff::Timestamp::now();
    let version = PathBuf::from(format!("..{}.{}", now.as_second(), now.subsec_nanosecond()));
    for (path, file) in payload {
        let path = directory.join(&version).join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, &file.content)?;
        if let Some(group) = group {
            chown(&path, None, Some(group))?;
        }
        let mode = if group.is_some() { file.mode | 0o440 } else { file.mode };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    }
    fs::create_dir_all(directory.join(&version))?;
    replace_link(directory, DATA, &version)?;
    link_names(directory, payload)?;
    match present {
        Some(old) => fs::remove_dir_all(directory.join(old)),
        None => Ok(()),
    }
}

fn is_same(version: &Path, payload: &Payload) -> bool {
    fn count(directory: &Path) -> usize {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries.map(|entry| if entry.path().is_dir() { count(&entry.path()) } else { 1 }).sum()
    }
    count(version) == payload.len()
        && payload.iter().all(|(path, file)| fs::read(version.join(path)).is_ok_and(|bytes| bytes == file.content))
}

fn replace_link(directory: &Path, name: &str, target: &Path) -> io::Result<()> {
    let next = directory.join("..next");
    crate::files::remove_file(&next)?;
    symlink(target, &next)?;
    fs::rename(next, directory.join(name))
}

/// One link per first part of a path; links to what is gone go too.
fn link_names(directory: &Path, payload: &Payload) -> io::Result<()> {
    let names: std::collections::BTreeSet<&str> = payload.keys().filter_map(|path| path.split('/').next()).collect();
    for name in &names {
        if fs::symlink_metadata(directory.join(name)).is_err() {
            symlink(Path::new(DATA).join(name), directory.join(name))?;
        }
    }
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with("..") && !names.contains(&*name) {
            crate::files::remove_file(&directory.join(&*name))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(pairs: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
    }

    fn all(pairs: &[(&str, &str)]) -> Payload {
        from_keys("secret", "s", &data(pairs), None, Some(0o400), false).unwrap()
    }

    #[test]
    fn listed_keys_get_their_paths_and_modes() {
        let items = [KeyToPath { key: "a".into(), path: "x/y".into(), mode: Some(0o600) }];
        let payload = from_keys("secret", "s", &data(&[("a", "1"), ("b", "2")]), Some(&items), None, false).unwrap();
        assert_eq!(payload, Payload::from([("x/y".to_owned(), PayloadFile { content: b"1".to_vec(), mode: 0o600 })]));
    }

    #[test]
    fn missing_keys_and_bad_paths_are_refused() {
        let items = |key: &str, path: &str| [KeyToPath { key: key.into(), path: path.into(), mode: None }];
        let of = |items: [KeyToPath; 1], optional| {
            from_keys("secret", "s", &data(&[("a", "1")]), Some(&items), None, optional)
        };
        assert_eq!(of(items("b", "b"), false).unwrap_err().to_string(), "secret \"s\" has no key \"b\"");
        assert_eq!(of(items("b", "b"), true), Ok(Payload::new()));
        for path in ["../x", "/x", "a/../../x", ""] {
            assert_eq!(of(items("a", path), false), Err(PayloadError::Path(path.to_owned())));
            assert_eq!(from_token(path, "t".to_owned(), None), Err(PayloadError::Path(path.to_owned())));
        }
    }

    #[test]
    fn files_are_replaced_all_at_once_and_only_when_they_changed() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        write(root, &all(&[("a", "1"), ("b", "2")]), None).unwrap();
        assert_eq!(fs::read(root.join("a")).unwrap(), b"1");
        let version = fs::read_link(root.join(DATA)).unwrap();
        write(root, &all(&[("a", "1"), ("b", "2")]), None).unwrap();
        assert_eq!(fs::read_link(root.join(DATA)).unwrap(), version);
        write(root, &all(&[("a", "3")]), None).unwrap();
        assert_eq!(fs::read(root.join("a")).unwrap(), b"3");
        assert!(fs::symlink_metadata(root.join("b")).is_err());
        assert!(!root.join(version).exists());
        assert_eq!(fs::metadata(root.join("a")).unwrap().permissions().mode() & 0o777, 0o400);
    }
}
