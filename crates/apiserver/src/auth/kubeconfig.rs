//! The file that tells `kubectl` where the cluster is and who we are.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::pki::{Identity, PkiError};
use super::private_file;

/// A kubeconfig with everything inline, for one cluster and one user called `name`.
pub fn kubeconfig(name: &str, server: &str, ca_certificate: &str, identity: &Identity) -> Value {
    let encode = |pem: &str| STANDARD.encode(pem);
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {
            "server": server,
            "certificate-authority-data": encode(ca_certificate),
        }}],
        "users": [{"name": name, "user": {
            "client-certificate-data": encode(&identity.certificate),
            "client-key-data": encode(&identity.key),
        }}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
        "preferences": {},
    })
}

/// The same as YAML text.
///
/// Every value is a string of characters that need no care beyond JSON's own quoting, and JSON strings are YAML.
pub fn kubeconfig_yaml(name: &str, server: &str, ca_certificate: &str, identity: &Identity) -> String {
    let quoted = |text: &str| Value::from(text).to_string();
    let encode = |pem: &str| STANDARD.encode(pem);
    let name = quoted(name);
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: {name}\n  cluster:\n    server: {}\n    \
         certificate-authority-data: {}\nusers:\n- name: {name}\n  user:\n    client-certificate-data: {}\n    \
         client-key-data: {}\ncontexts:\n- name: {name}\n  context:\n    cluster: {name}\n    user: {name}\n\
         current-context: {name}\npreferences: {{}}\n",
        quoted(server),
        encode(ca_certificate),
        encode(&identity.certificate),
        encode(&identity.key),
    )
}

/// Writes a kubeconfig (or anything else that holds a key) so that only its owner can read it.
pub fn write_private(path: &Path, content: &str) -> Result<(), PkiError> {
    private_file::write(path, content.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_and_value_say_the_same() {
        let identity = Identity { certificate: "CERT".to_owned(), key: "KEY".to_owned() };
        let value = kubeconfig("ferro\"virt", "https://127.0.0.1:6443", "CA", &identity);
        let yaml = kubeconfig_yaml("ferro\"virt", "https://127.0.0.1:6443", "CA", &identity);
        assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), value);
        assert_eq!(value["users"][0]["user"]["client-key-data"], "S0VZ");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubeconfig");
        write_private(&path, &yaml).unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), yaml);
    }
}
