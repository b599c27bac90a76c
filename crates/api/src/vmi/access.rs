//! Keys and passwords that reach the guest from secrets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::meta::Empty;

/// One credential: either SSH keys or passwords.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessCredential {
    /// Authorised SSH keys.
    pub ssh_public_key: Option<SshPublicKeyAccessCredential>,
    /// Passwords of users.
    pub user_password: Option<UserPasswordAccessCredential>,
}

/// SSH keys, where they come from and how they get into the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SshPublicKeyAccessCredential {
    /// Where the keys are kept.
    pub source: SshPublicKeySource,
    /// How the keys get into the guest.
    pub propagation_method: SshPublicKeyPropagation,
}

/// Where SSH keys are kept.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SshPublicKeySource {
    /// A secret with one key per entry.
    pub secret: Option<AccessCredentialSecretSource>,
}

/// How SSH keys get into the guest.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SshPublicKeyPropagation {
    /// In the cloud-init config drive, read at boot.
    pub config_drive: Option<Empty>,
    /// In the cloud-init no-cloud disk, read at boot.
    pub no_cloud: Option<Empty>,
    /// By the guest agent, while the guest runs.
    pub qemu_guest_agent: Option<QemuGuestAgentSshKeys>,
}

/// SSH keys that the guest agent writes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QemuGuestAgentSshKeys {
    /// The guest's users who get the keys.
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub users: Vec<String>,
}

/// Passwords, where they come from and how they get into the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserPasswordAccessCredential {
    /// Where the passwords are kept.
    pub source: UserPasswordSource,
    /// How the passwords get into the guest.
    pub propagation_method: UserPasswordPropagation,
}

/// Where passwords are kept.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserPasswordSource {
    /// A secret whose entries are user names with their passwords.
    pub secret: Option<AccessCredentialSecretSource>,
}

/// How passwords get into the guest.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserPasswordPropagation {
    /// By the guest agent, while the guest runs.
    pub qemu_guest_agent: Option<Empty>,
}

/// A secret in the guest's namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessCredentialSecretSource {
    /// Name of the secret.
    pub secret_name: String,
}
