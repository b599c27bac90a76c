//! What an installation depends on.

use serde_json::Value;

/// The two images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    /// Operator, virt-api and virt-controller.
    pub control_plane: String,
    /// Launcher pods, and virt-handler, which has to find out what the same QEMU can do.
    pub launcher: String,
}

impl Images {
    /// The images of a version in a registry.
    #[must_use]
    pub fn of(registry: &str, version: &str) -> Self {
        let image = |name: &str| format!("{}/{name}:{version}", registry.trim_end_matches('/'));
        Self { control_plane: image("control-plane"), launcher: image("launcher") }
    }

    /// The same images from another registry or with another tag.
    #[must_use]
    pub fn moved(&self, registry: Option<&str>, tag: Option<&str>) -> Self {
        let moved = |image: &str| {
            let (base, old_tag) = split(image);
            let name = base.rsplit('/').next().unwrap_or(base);
            let base = registry.map_or_else(|| base.to_owned(), |it| format!("{}/{name}", it.trim_end_matches('/')));
            match tag.map(|tag| format!(":{tag}")).or_else(|| old_tag.map(str::to_owned)) {
                Some(tag) => format!("{base}{tag}"),
                None => base,
            }
        };
        Self { control_plane: moved(&self.control_plane), launcher: moved(&self.launcher) }
    }

    /// Registry and tag, as the status of an installation shows them.
    #[must_use]
    pub fn registry_and_tag(&self) -> (&str, &str) {
        let (base, tag) = split(&self.control_plane);
        (base.rsplit_once('/').map_or("", |(registry, _)| registry), tag.map_or("", |tag| &tag[1..]))
    }
}

/// An image without its tag or digest, and that with its sign. A colon before a slash belongs to the registry's port.
fn split(image: &str) -> (&str, Option<&str>) {
    if let Some(at) = image.find('@') {
        return (&image[..at], Some(&image[at..]));
    }
    match image.rfind(':') {
        Some(at) if !image[at..].contains('/') => (&image[..at], Some(&image[at..])),
        _ => (image, None),
    }
}

/// Which nodes something runs on, as fields of a pod's spec; what is not set has a default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    /// `nodeSelector`
    pub node_selector: Option<Value>,
    /// `affinity`
    pub affinity: Option<Value>,
    /// `tolerations`
    pub tolerations: Option<Value>,
}

/// What an installation depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// Where everything is.
    pub namespace: String,
    /// Images of the components.
    pub images: Images,
    /// When they are pulled.
    pub pull_policy: String,
    /// Names of secrets for the registry.
    pub pull_secrets: Vec<String>,
    /// Nodes of the control plane.
    pub infra: Placement,
    /// Nodes with guests.
    pub workloads: Placement,
    /// How many virt-apis.
    pub api_replicas: u32,
    /// How many virt-controllers, of which one works.
    pub controller_replicas: u32,
    /// The users' roles become part of the cluster's own `admin`, `edit` and `view`.
    pub aggregate_roles: bool,
    /// Certificates of the authorities, as PEM; empty as long as there are none.
    pub ca_bundle: String,
}

impl Parameters {
    /// Two of each, anywhere.
    #[must_use]
    pub fn new(namespace: &str, images: Images) -> Self {
        Self {
            namespace: namespace.to_owned(),
            images,
            pull_policy: "IfNotPresent".to_owned(),
            pull_secrets: Vec::new(),
            infra: Placement::default(),
            workloads: Placement::default(),
            api_replicas: 2,
            controller_replicas: 2,
            aggregate_roles: true,
            ca_bundle: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_move_to_other_registries_and_tags() {
        let images = Images::of("registry:5000/a/", "v1");
        assert_eq!(images.control_plane, "registry:5000/a/control-plane:v1");
        assert_eq!(images.registry_and_tag(), ("registry:5000/a", "v1"));
        assert_eq!(images.moved(None, None), images);
        assert_eq!(images.moved(Some("other"), None).launcher, "other/launcher:v1");
        assert_eq!(images.moved(None, Some("v2")).launcher, "registry:5000/a/launcher:v2");
        let exact = Images { control_plane: "r:1/c@sha256:0".to_owned(), launcher: "r:1/l".to_owned() };
        assert_eq!(exact.moved(Some("s"), None).control_plane, "s/c@sha256:0");
        assert_eq!(exact.moved(Some("s"), Some("v3")).launcher, "s/l:v3");
    }
}
