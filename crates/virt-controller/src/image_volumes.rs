//! Whether launcher pods may have image volumes.
//!
//! An API server that does not know them, or has them turned off, leaves them out of the pods that it is given, and says nothing. So it is asked
//! for a pod that it shall only try (a dry run), and the answer has the volume or has it not. It is asked again from time to time, as
//! servers are updated.
//!
//! What a node does cannot be asked. Its kubelet and its container runtime say their versions, and what is too old, or unknown, is taken to
//! lack image volumes: what is used instead works everywhere.

use std::sync::Arc;
use std::time::Duration;

use ferrovirt_api::names::labels;
use ferrovirt_kubernetes::{Node, Pod};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::json;

/// By this nodes are found that take guests and lack image volumes. No label is written so.
pub(crate) const NO_IMAGE_VOLUMES: &str = "no image volumes";

/// The first kubelet that has them without being told to.
const KUBELET: Version = Version(1, 35);
/// The first version of each container runtime that has them.
const RUNTIMES: [(&str, Version); 2] = [("containerd", Version(2, 1)), ("cri-o", Version(1, 33))];

/// Until a server that did not answer is asked again.
const PAUSE: Duration = Duration::from_secs(2);
/// Until an answer is questioned. A server that loses them meanwhile makes pods without disks, which is rare; each question costs one request.
const TRUSTED: Duration = Duration::from_secs(300);

/// Who knows image volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImageVolumes {
    /// The API server, and every node that takes guests.
    #[default]
    Everywhere,
    /// The API server; some node may not.
    SomeNodes,
    /// The API server does not.
    Nowhere,
}

/// What the API server said; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Asked(Arc<Mutex<Option<bool>>>);

impl Asked {
    /// Whether the API server keeps image volumes; nothing where nobody asked.
    pub fn answer(&self) -> Option<bool> {
        *self.0.lock()
    }

    /// Asks until there is an answer.
    pub(crate) async fn ask(&self, client: &Client, namespace: &str, image: &str) {
        loop {
            match keeps_image_volumes(client, namespace, image).await {
                Ok(answer) => {
                    if self.0.lock().replace(answer) != Some(answer) {
                        tracing::info!(answer, "whether the API server knows image volumes");
                    }
                    return;
                }
                Err(error) => tracing::warn!(%error, "the API server does not say whether it knows image volumes"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Asks now and then; does not end.
    pub(crate) async fn keep_asking(&self, client: &Client, namespace: &str, image: &str) {
        loop {
            tokio::time::sleep(TRUSTED).await;
            self.ask(client, namespace, image).await;
        }
    }
}

/// Tries a pod with an image volume. A refusal is a no, whatever it is about: the same would happen to launcher pods, or it says nothing
/// about them, and then what works everywhere is the safe choice.
async fn keeps_image_volumes(client: &Client, namespace: &str, image: &str) -> Result<bool, kube::Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let params = PostParams { dry_run: true, ..PostParams::default() };
    match pods.create(&params, &question(image)).await {
        Ok(pod) => {
            Ok(pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).any(|volume| volume.image.is_some()))
        }
        Err(kube::Error::Api(status))
            if (400..500).contains(&status.code) && ![408, 409, 429].contains(&status.code) =>
        {
            tracing::warn!(refusal = status.message, "a pod with an image volume is refused");
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// A pod that nobody has a reason to refuse.
fn question(image: &str) -> Pod {
    let amounts = json!({"cpu": "1m", "memory": "1M"});
    let pod = json!({
        "metadata": {"generateName": "has-image-volumes-"},
        "spec": {
            "restartPolicy": "Never", "automountServiceAccountToken": false,
            "securityContext": {"runAsNonRoot": true, "runAsUser": 1001, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "question", "image": image,
                "resources": {"requests": amounts, "limits": amounts},
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
                "volumeMounts": [{"name": "image", "mountPath": "/image", "readOnly": true}],
            }],
            "volumes": [{"name": "image", "image": {"reference": image, "pullPolicy": "IfNotPresent"}}],
        },
    });
    // What is written above is a pod.
    serde_json::from_value(pod).unwrap_or_default()
}

/// Whether guests run on the node, and its versions do not promise image volumes. A node that says no versions is not judged.
pub(crate) fn lacks_image_volumes(node: &Node) -> bool {
    let takes_guests = node.metadata.labels.as_ref().is_some_and(|all| all.contains_key(labels::NODE_SCHEDULABLE));
    let Some(info) = node.status.as_ref().and_then(|status| status.node_info.as_ref()) else { return false };
    let has_kubelet = || Version::parse(&info.kubelet_version).is_some_and(|version| version >= KUBELET);
    let has_runtime = || {
        let (name, version) = info.container_runtime_version.split_once("://").unwrap_or_default();
        let wanted = RUNTIMES.iter().find(|(known, _)| *known == name);
        wanted.is_some_and(|(_, wanted)| Version::parse(version).is_some_and(|version| version >= *wanted))
    };
    takes_guests && !info.kubelet_version.is_empty() && !(has_kubelet() && has_runtime())
}

/// Major and minor number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u32, u32);

impl Version {
    /// Of `v1.36.1`, `2.1.4-k3s1` and the like.
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.trim_start_matches('v').split(|letter: char| !letter.is_ascii_digit());
        Some(Self(numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_tell_what_a_node_lacks() {
        let lacks = |kubelet: &str, runtime: &str| {
            let info = json!({
                "kubeletVersion": kubelet, "containerRuntimeVersion": runtime, "architecture": "", "bootID": "",
                "kernelVersion": "", "kubeProxyVersion": "", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": "",
            });
            let labels = json!({ labels::NODE_SCHEDULABLE: "true" });
            let node = json!({"metadata": {"labels": labels}, "status": {"nodeInfo": info}});
            let mut node: Node = serde_json::from_value(node).unwrap();
            let answer = lacks_image_volumes(&node);
            node.metadata.labels = None;
            assert!(!lacks_image_volumes(&node), "no guest runs there");
            answer
        };
        for (kubelet, runtime) in [
            ("v1.36.1", "containerd://2.1.0"),
            ("v1.35.0-gke.1", "containerd://2.2.0-rc.1"),
            ("v1.36.0+k3s1", "containerd://3.0.1-k3s2"),
            ("v1.40.2", "cri-o://1.33.0"),
            ("", ""),
        ] {
            assert!(!lacks(kubelet, runtime), "{kubelet} {runtime}");
        }
        for (kubelet, runtime) in [
            ("v1.34.9", "containerd://2.1.0"),
            ("v1.36.1", "containerd://2.0.7"),
            ("v1.36.1", "containerd://1.7.27"),
            ("v1.36.1", "cri-o://1.32.4"),
            ("v1.36.1", "docker://29.1"),
            ("v1.36.1", ""),
            ("later", "containerd://2.1.0"),
        ] {
            assert!(lacks(kubelet, runtime), "{kubelet} {runtime}");
        }
    }

    #[test]
    fn the_question_is_a_pod_with_an_image_volume() {
        let spec = question("launcher:1").0.spec.unwrap();
        assert_eq!(spec.volumes.unwrap()[0].image.as_ref().unwrap().reference.as_deref(), Some("launcher:1"));
        assert_eq!(spec.containers[0].volume_mounts.as_ref().unwrap()[0].name, "image");
    }
}
