//! Pods that reach for the machine's files and loopback through what the node does for them. The suite has to run on that machine.

use std::path::Path;

use anyhow::{Result, ensure};
use blackbox::cluster::wait;
use blackbox::scene::Scene;
use blackbox::suite::{Case, Need};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::inside::run_pod;
use super::pods::pod;
use crate::tenant::{Ask, Role, Tenant};

/// How long it may take until a probe has failed.
const PATIENCE: u64 = 60;

/// All cases of this file.
pub(super) fn all() -> Vec<Case<Scene>> {
    let cases = vec![
        Case::new("machine/last-words", "Where last words go, nothing is made on the machine.", last_words),
        Case::new("machine/mount-point", "Where a volume is mounted, nothing is made on the machine.", mount_point),
        Case::new("machine/program", "Beside the machine's programs nothing is made.", beside_programs),
        Case::new("machine/token-path", "A token is written nowhere but into its volume.", token_path),
        Case::new("machine/long-last-words", "Of endless last words little is read.", long_last_words),
        Case::new("machine/loopback", "A probe does not reach the machine's loopback.", loopback),
        Case::new("machine/connect", "A container does not reach the machine's loopback.", connect),
        Case::new("machine/shared-root", "What one container leaves in its root, no other sees.", shared_root),
    ];
    cases.into_iter().map(|case| case.needing(Need::LocalNodes)).collect()
}

/// A name that nobody else has.
fn trace(tenant: &Tenant) -> String {
    format!("ferrovirt-{}", tenant.scene.namespace)
}

/// Runs a pod to its end, if it starts at all, and looks whether there is something of it on the machine.
async fn leaves_nothing(tenant: &Tenant, pod: &Value, place: &str) -> Result<()> {
    let made = tenant.ask(&Ask::post("/api/v1/namespaces/{ns}/pods", pod)).await?;
    if made.code == 201 {
        let path = tenant.scene.path("/api/v1", "pods/try");
        wait("the pod to end, or to be turned away", PATIENCE, || async {
            let status = tenant.scene.cluster.get(&path).await?["status"].take();
            let state = &status["containerStatuses"][0]["state"];
            let is_over = !state["terminated"].is_null() || status["phase"] == "Failed";
            let is_stuck = state["waiting"]["reason"].as_str().is_some_and(|reason| reason.ends_with("Error"));
            let is_refused = tenant.warned("").await?;
            Ok((is_over || is_stuck || is_refused).then_some(()))
        })
        .await?;
    }
    ensure!(!Path::new(place).exists(), "the machine has {place} now");
    Ok(())
}

impl Tenant {
    /// Whether a warning was told about something in the namespace, with a certain word.
    async fn warned(&self, word: &str) -> Result<bool> {
        let events = self.scene.cluster.get(&self.scene.path("/api/v1", "events")).await?;
        let mut all = events["items"].as_array().into_iter().flatten();
        Ok(all.any(|event| {
            event["type"] == "Warning" && event["message"].as_str().is_some_and(|message| message.contains(word))
        }))
    }
}

async fn last_words(scene: Scene) -> Result<()> {
    let tenant = Tenant::new(scene, Role::Editor).await?;
    let place = format!("/usr/local/bin/{}", trace(&tenant));
    let mut pod = pod("true");
    pod["spec"]["containers"][0]["terminationMessagePath"] = json!(place);
    leaves_nothing(&tenant, &pod, &place).await
}

async fn mount_point(scene: Scene) -> Result<()> {
    mounted_at(scene, "/usr/local/share").await
}

async fn beside_programs(scene: Scene) -> Result<()> {
    mounted_at(scene, "/opt/ferrovirt/bin").await
}

async fn mounted_at(scene: Scene, directory: &str) -> Result<()> {
    let tenant = Tenant::new(scene, Role::Editor).await?;
    let place = format!("{directory}/{}", trace(&tenant));
    let mut pod = pod("true");
    pod["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": place}]);
    leaves_nothing(&tenant, &pod, &place).await
}

async fn token_path(scene: Scene) -> Result<()> {
    let tenant = Tenant::new(scene, Role::Editor).await?;
    let place = format!("/tmp/{}", trace(&tenant));
    let mut pod = pod("true");
    let token = json!({"serviceAccountToken": {"path": format!("{}{place}", "../".repeat(40).trim_end_matches('/'))}});
    pod["spec"]["volumes"] = json!([{"name": "v", "projected": {"sources": [token]}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/tmp/v"}]);
    leaves_nothing(&tenant, &pod, &place).await
}

async fn long_last_words(scene: Scene) -> Result<()> {
    let tenant = Tenant::new(scene, Role::Editor).await?;
    let code = run_pod(&tenant, &pod("truncate -s 3G /dev/termination-log; exit 3")).await?;
    ensure!(code == 3, "the pod ended with {code}");
    let there = tenant.scene.cluster.get(&tenant.scene.path("/api/v1", "pods/try")).await?;
    let message = &there["status"]["containerStatuses"][0]["state"]["terminated"]["message"];
    ensure!(message.as_str().is_none_or(|message| message.len() <= 4096), "its last words are too long");
    Ok(())
}

async fn loopback(scene: Scene) -> Result<()> {
    let tenant = Tenant::new(scene, Role::Editor).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let mut pod = pod("sleep 600");
    pod["spec"]["containers"][0]["readinessProbe"] =
        json!({"httpGet": {"host": "127.0.0.1", "port": port, "path": "/"}, "periodSeconds": 1, "timeoutSeconds": 1});
    let made = tenant.ask(&Ask::post("/api/v1/namespaces/{ns}/pods", &pod)).await?;
    ensure!(made.code == 201, "the pod was answered with {}: {}", made.code, made.body);
    let failed = wait("the probe to fail", PATIENCE, || async { Ok(tenant.warned("robe").await?.then_some(())) });
    tokio::select! {
        failed = failed => failed,
        _ = listener.accept() => anyhow::bail!("the probe came to the machine's loopback"),
    }
}

async fn connect(scene: Scene) -> Result<()> {
    let tenant = Tenant::new(scene, Role::Editor).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    // Bash says 1 when nobody listens there, and 127 where there is no bash.
    let script = format!("timeout 5 bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}'");
    let pod = pod(&script);
    tokio::select! {
        code = run_pod(&tenant, &pod) => {
            let code = code?;
            ensure!(code == 1, "the pod ended with {code}");
            Ok(())
        }
        _ = listener.accept() => anyhow::bail!("the container came to the machine's loopback"),
    }
}

async fn shared_root(scene: Scene) -> Result<()> {
    let tenant = Tenant::new(scene, Role::Editor).await?;
    let mut first = pod("true");
    first["spec"]["containers"][0]["terminationMessagePath"] = json!("/etc/left");
    run_pod(&tenant, &first).await?;
    tenant.scene.cluster.delete(&tenant.scene.path("/api/v1", "pods/try")).await?;
    wait("the pod to go", PATIENCE, || async {
        let path = tenant.scene.path("/api/v1", "pods/try");
        Ok(tenant.scene.cluster.find(&path).await?.is_none().then_some(()))
    })
    .await?;
    let code = run_pod(&tenant, &pod("test -e /etc/left")).await?;
    ensure!(code != 0, "the second container sees what the first has left");
    Ok(())
}
