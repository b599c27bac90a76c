//! The part of the OCI runtime specification that is used.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// `config.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// Version of the specification.
    pub oci_version: String,
    /// What runs.
    pub process: Process,
    /// The file tree.
    pub root: Root,
    /// The container's host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// In the order in which they are made.
    pub mounts: Vec<Mount>,
    /// Linux' own.
    pub linux: Linux,
}

/// What runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Process {
    /// Has a terminal.
    pub terminal: bool,
    /// Runs as.
    pub user: User,
    /// Program and arguments.
    pub args: Vec<String>,
    /// `NAME=value`
    pub env: Vec<String>,
    /// Starts in.
    pub cwd: String,
    /// May do.
    pub capabilities: Capabilities,
    /// Gains nothing by starting programs.
    pub no_new_privileges: bool,
}

/// Numbers of a user.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct User {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub additional_gids: Vec<u32>,
}

/// Sets of capabilities.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Capabilities {
    /// Can ever be had.
    pub bounding: Vec<String>,
    /// Are used.
    pub effective: Vec<String>,
    /// Can be taken up.
    pub permitted: Vec<String>,
    /// Pass to programs that ask for them.
    pub inheritable: Vec<String>,
    /// Pass to every program.
    pub ambient: Vec<String>,
}

/// The file tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// On this machine.
    pub path: PathBuf,
    /// Takes no writes.
    pub readonly: bool,
}

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// In the container.
    pub destination: String,
    /// File system or `bind`.
    #[serde(rename = "type")]
    pub kind: String,
    /// On the machine.
    pub source: PathBuf,
    /// Options.
    pub options: Vec<String>,
}

impl Mount {
    fn of(kind: &str, destination: &str, source: &Path, options: &[&str]) -> Self {
        Self {
            destination: destination.to_owned(),
            kind: kind.to_owned(),
            source: source.to_owned(),
            options: options.iter().map(|&option| option.to_owned()).collect(),
        }
    }

    /// A directory or file of the machine.
    pub fn bind(destination: &str, source: impl AsRef<Path>, options: &[&str]) -> Self {
        Self::of("bind", destination, source.as_ref(), options)
    }

    /// A file system in memory.
    pub fn tmpfs(destination: &str, options: &[&str]) -> Self {
        Self::of("tmpfs", destination, Path::new("tmpfs"), options)
    }

    /// A file system of the kernel.
    pub fn kernel(kind: &str, destination: &str, options: &[&str]) -> Self {
        Self::of(kind, destination, Path::new(kind), options)
    }
}

/// Linux' own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Linux {
    /// Below each control group hierarchy.
    pub cgroups_path: String,
    /// Limits.
    pub resources: Resources,
    /// Device nodes.
    pub devices: Vec<Device>,
    /// New or joined.
    pub namespaces: Vec<Namespace>,
    /// Settings of the container's namespaces.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctl: BTreeMap<String, String>,
    /// Hidden.
    pub masked_paths: Vec<String>,
    /// Not to be written.
    pub readonly_paths: Vec<String>,
    /// Calls of the kernel that may be made; without it, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seccomp: Option<Seccomp>,
}

/// What becomes of calls of the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seccomp {
    /// Of those that are not listed.
    pub default_action: String,
    /// The error that these get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_errno_ret: Option<u32>,
    /// Of those that are.
    pub syscalls: Vec<Calls>,
}

/// Calls that are treated alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Calls {
    /// Which.
    pub names: Vec<String>,
    /// What becomes of them.
    pub action: String,
    /// The error that they get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno_ret: Option<u32>,
    /// Only when all of this holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<Argument>,
}

/// A condition on an argument of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Argument {
    /// Which argument.
    pub index: u32,
    /// A number, or the bits that are looked at.
    pub value: u64,
    /// What those bits have to be.
    pub value_two: u64,
    /// How to compare.
    pub op: String,
}

/// A namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// Which one.
    #[serde(rename = "type")]
    pub kind: String,
    /// The one to join.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
}

/// A device node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// In the container.
    pub path: String,
    /// `c` or `b`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Number.
    pub major: u32,
    /// Number.
    pub minor: u32,
    /// Permissions.
    pub file_mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Limits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Resources {
    /// Devices that may be used.
    pub devices: Vec<DeviceRule>,
    /// Processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<Pids>,
}

/// Devices that may be used, or may not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRule {
    /// May.
    pub allow: bool,
    /// `c`, `b`, or both.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Number, or all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub major: Option<u32>,
    /// Number, or all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minor: Option<u32>,
    /// Read, write, make.
    pub access: String,
}

/// Processor time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cpu {
    /// Weight, 1024 for one processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares: Option<u64>,
    /// Microseconds in each period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<i64>,
    /// Microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<u64>,
}

/// Memory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Memory {
    /// Bytes.
    pub limit: i64,
}

/// Processes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Pids {
    /// Most of them.
    pub limit: i64,
}
