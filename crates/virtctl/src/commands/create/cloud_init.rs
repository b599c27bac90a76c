//! Users, passwords and keys of a new machine.

use std::path::PathBuf;

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::params::{Params, wrong};

/// The volume with the generated data.
const DISK: &str = "cloudinitdisk";
const HEADER: &str = "#cloud-config";

/// Flags for cloud-init and access credentials.
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "Users")]
pub(crate) struct CloudInit {
    /// User that cloud-init makes.
    #[arg(long, conflicts_with = "cloud_init_user_data")]
    user: Option<String>,
    /// File with the user's password; it is stored in the machine in clear text.
    #[arg(long, value_name = "FILE", conflicts_with = "cloud_init_user_data")]
    password_file: Option<PathBuf>,
    /// Public keys that may log in, separated by commas; may be given several times.
    #[arg(long, value_name = "KEYS", value_delimiter = ',', conflicts_with = "cloud_init_user_data")]
    ssh_key: Vec<String>,
    /// Let the guest's agent change keys (on systems with SELinux).
    #[arg(long, conflicts_with = "cloud_init_user_data")]
    ga_manage_ssh: bool,
    /// Credential from a secret: `type:ssh|password,src:SECRET[,user:USER][,method:ga|nocloud|configdrive]`; may be given several times.
    #[arg(long, value_name = "PARAMS")]
    access_cred: Vec<String>,
    /// How the data reaches the guest: nocloud, configdrive or none. Default: nocloud.
    #[arg(long, value_name = "TYPE")]
    cloud_init: Option<String>,
    /// User data, base64.
    #[arg(long, value_name = "BASE64")]
    cloud_init_user_data: Option<String>,
    /// Network data, base64.
    #[arg(long, value_name = "BASE64")]
    cloud_init_network_data: Option<String>,
}

/// What credentials add to the wishes of the flags.
#[derive(Default)]
struct Wishes {
    /// The agent must be able to change keys.
    agent: bool,
    /// A data source must be there, of this type.
    source: Option<String>,
}

impl CloudInit {
    /// Adds credentials and the volume with the data.
    pub(super) fn add(&self, vm: &mut Value) -> anyhow::Result<()> {
        let wishes = self.credentials(vm)?;
        let agent = self.ga_manage_ssh || wishes.agent;
        let data = self.cloud_init_user_data.is_some() || self.cloud_init_network_data.is_some();
        let content = self.user.is_some() || self.password_file.is_some() || !self.ssh_key.is_empty() || agent || data;
        let wanted = self.cloud_init.clone().or(wishes.source);
        if !content && wanted.is_none() {
            return Ok(());
        }
        let kind = match wanted.as_deref().unwrap_or("nocloud").to_lowercase().as_str() {
            "nocloud" => "cloudInitNoCloud",
            "configdrive" => "cloudInitConfigDrive",
            "none" => {
                if content {
                    eprintln!("WARNING: --cloud-init is none: the other options of cloud-init have no effect");
                }
                return Ok(());
            }
            other => bail!(wrong(
                "cloud-init",
                &format!(
                    "invalid cloud-init data source type \"{other}\", supported values are: nocloud, configdrive, none"
                )
            )),
        };
        let mut source = json!({});
        if let Some(network) = &self.cloud_init_network_data {
            source["networkDataBase64"] = json!(network);
        }
        match &self.cloud_init_user_data {
            Some(data) => source["userDataBase64"] = json!(data),
            None => source["userData"] = json!(self.user_data(agent)?),
        }
        let volumes = &mut vm["spec"]["template"]["spec"]["volumes"];
        let volume = json!({"name": DISK, kind: source});
        match volumes {
            Value::Array(list) if list.iter().any(|known| known["name"] == DISK) => {
                bail!("there is already a volume with name \"{DISK}\"")
            }
            Value::Array(list) => list.push(volume),
            other => *other = json!([volume]),
        }
        Ok(())
    }

    fn user_data(&self, agent: bool) -> anyhow::Result<String> {
        let mut lines = vec![HEADER.to_owned()];
        lines.extend(self.user.iter().map(|user| format!("user: {}", scalar(user))));
        if let Some(file) = &self.password_file {
            let text = std::fs::read_to_string(file)
                .with_context(|| wrong("password-file", &format!("cannot read {}", file.display())))?;
            eprintln!("WARNING: --password-file: The password is stored in cleartext in the VM definition!");
            if !text.trim().is_empty() {
                lines.push(format!("password: {}", scalar(text.trim())));
                lines.push("chpasswd: { expire: False }".to_owned());
            }
        }
        if !self.ssh_key.is_empty() {
            lines.push("ssh_authorized_keys:".to_owned());
            lines.extend(self.ssh_key.iter().map(|key| format!("  - {}", scalar(key))));
        }
        if agent {
            lines.push("runcmd:\n  - [ setsebool, -P, 'virt_qemu_ga_manage_ssh', 'on' ]".to_owned());
        }
        Ok(lines.join("\n"))
    }

    fn credentials(&self, vm: &mut Value) -> anyhow::Result<Wishes> {
        let mut wishes = Wishes::default();
        let mut credentials = Vec::new();
        for text in &self.access_cred {
            let params = Params::parse("access-cred", text, &["type", "src", "method", "user"])?;
            let secret = json!({"secret": {"secretName": params.need("src")?}});
            let kind = params.get("type").unwrap_or("ssh");
            let method = params.get("method").unwrap_or("ga").to_lowercase();
            credentials.push(match (kind, method.as_str()) {
                ("ssh", "ga") => {
                    wishes.agent = true;
                    let Some(user) = params.get("user").or(self.user.as_deref()) else {
                        bail!(params.wrong("user must be specified with access credential type \"ssh\": give --user or user:USER"));
                    };
                    let way = json!({"qemuGuestAgent": {"users": [user]}});
                    json!({"sshPublicKey": {"source": secret, "propagationMethod": way}})
                }
                ("ssh", way @ ("nocloud" | "configdrive")) => {
                    wishes.source = Some(way.to_owned());
                    let field = if way == "nocloud" { "noCloud" } else { "configDrive" };
                    json!({"sshPublicKey": {"source": secret, "propagationMethod": {field: {}}}})
                }
                ("password", "ga") => {
                    json!({"userPassword": {"source": secret, "propagationMethod": {"qemuGuestAgent": {}}}})
                }
                ("ssh" | "password", other) => {
                    bail!(params.wrong(&format!("invalid method \"{other}\" for type \"{kind}\", supported values are: ga, nocloud, configdrive (ssh only)")))
                }
                (other, _) => bail!(params.wrong(&format!("invalid access credential type \"{other}\", supported values are: ssh, password"))),
            });
        }
        if !credentials.is_empty() {
            vm["spec"]["template"]["spec"]["accessCredentials"] = json!(credentials);
        }
        Ok(wishes)
    }
}

/// A YAML scalar: plain where that is safe, quoted otherwise.
fn scalar(text: &str) -> String {
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./+=@ ".contains(c))
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && !text.ends_with(' ')
        && !["true", "false", "yes", "no", "on", "off", "null", "y", "n"].contains(&text.to_lowercase().as_str());
    if plain { text.to_owned() } else { json!(text).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_yaml_would_read_otherwise_is_quoted() {
        assert_eq!(scalar("ssh-ed25519 AAAA+/= jane@web"), "ssh-ed25519 AAAA+/= jane@web");
        for text in ["a: b", "#x", "no", "1234", "", " x", "a\"b", "{x}"] {
            assert_eq!(serde_saphyr::from_str::<Value>(&scalar(text)).unwrap(), json!(text), "{text}");
        }
    }
}
