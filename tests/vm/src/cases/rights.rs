//! Who may do what: the roles that users are given, and identities that are only claimed.

use anyhow::{Context, Result, ensure};
use blackbox::cluster::{Answer, Cluster, GUESTS, SUBRESOURCES, wait};
use blackbox::console::Console;
use blackbox::manifest::Manifest;
use http::Method;
use serde_json::{Value, json};

use super::conflicts::WEBSOCKET;
use crate::cases::Case;
use crate::stage::Stage;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("rights/view", "Who may view can ask a guest about itself, and change nothing.", view),
        Case::new("rights/edit", "Who may edit can start and connect, and cannot migrate.", edit),
        Case::new("rights/admin", "Who is admin of a namespace cannot migrate either.", admin),
        Case::new("rights/migrate", "Who may migrate can do that alone.", migrate),
        Case::new("rights/objects", "Rights over objects are none over their subresources.", objects),
        Case::new("rights/console", "The console has a right of its own.", console),
        Case::new("rights/default", "Everybody may see the version, and nobody else's machines.", default),
        Case::new("rights/front-proxy", "A user that is only named in a header is nobody.", front_proxy),
    ]
}

/// Gives a user a role in the case's namespace, and waits until it is known.
async fn user(stage: &Stage, role: &Value) -> Result<Cluster> {
    let name = format!("alice-of-{}", stage.scene.namespace);
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"generateName": "alice-"},
        "roleRef": role,
        "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
    });
    stage.scene.cluster.create(&stage.scene.path(RBAC, "rolebindings"), &binding).await?;
    stage.scene.cluster.impersonating(&name)
}

fn cluster_role(name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name})
}

/// Makes a role and gives it to a user.
async fn user_with(stage: &Stage, rules: &Value) -> Result<Cluster> {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "own"}, "rules": rules,
    });
    stage.scene.cluster.create(&stage.scene.path(RBAC, "roles"), &role).await?;
    user(stage, &json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "own"})).await
}

/// Asks for a subresource of something that does not exist: who may is told so (404), who may not is not (403).
async fn ask(stage: &Stage, user: &Cluster, what: &str) -> Result<Answer> {
    let path = stage.scene.path(SUBRESOURCES, &what.replacen('/', "/nobody/", 1));
    let action = what.split_once('/').map_or("", |(_, action)| action);
    if action.starts_with("portforward") || matches!(action, "console" | "vnc") {
        return user.answer_with(Method::GET, &path, &WEBSOCKET, None).await;
    }
    let looks = matches!(action, "guestosinfo" | "userlist" | "filesystemlist" | "expand-spec" | "vnc/screenshot");
    let (method, body) = if looks { (Method::GET, None) } else { (Method::PUT, Some(json!({}))) };
    user.answer(method, &path, body.as_ref()).await
}

const LOOK: &[&str] = &[
    "virtualmachines/expand-spec",
    "virtualmachineinstances/guestosinfo",
    "virtualmachineinstances/userlist",
    "virtualmachineinstances/filesystemlist",
];
const CONNECT: &[&str] = &[
    "virtualmachines/portforward/22",
    "virtualmachineinstances/console",
    "virtualmachineinstances/vnc",
    "virtualmachineinstances/vnc/screenshot",
    "virtualmachineinstances/portforward/22",
];
const CHANGE: &[&str] = &[
    "virtualmachines/start",
    "virtualmachines/stop",
    "virtualmachines/restart",
    "virtualmachineinstances/pause",
    "virtualmachineinstances/unpause",
    "virtualmachineinstances/freeze",
    "virtualmachineinstances/unfreeze",
    "virtualmachineinstances/reset",
    "virtualmachineinstances/softreboot",
];
const MIGRATE: &[&str] = &["virtualmachines/migrate"];

async fn may(stage: &Stage, user: &Cluster, all: &[&[&str]]) -> Result<()> {
    for what in all.concat() {
        // The first answers may come before the role is known everywhere.
        wait(&format!("the right to {what}"), 20, || async {
            let answer = ask(stage, user, what).await?;
            Ok((answer.code == 404).then_some(()))
        })
        .await?;
    }
    Ok(())
}

async fn may_not(stage: &Stage, user: &Cluster, all: &[&[&str]]) -> Result<()> {
    for what in all.concat() {
        let answer = ask(stage, user, what).await?;
        ensure!(answer.code == 403, "{what} is answered with {}: {}", answer.code, answer.body);
        // The API server in front looks at the first part of a path alone: who may not `vnc` is not asked about `vnc/screenshot`.
        let asked: Vec<&str> = what.split('/').take(2).collect();
        let asked = asked.join("/");
        let message = answer.body["message"].as_str().unwrap_or_default();
        ensure!(message.contains(&asked), "the refusal does not name {asked}: {message}");
    }
    Ok(())
}

async fn objects_code(stage: &Stage, user: &Cluster, method: Method, what: &str, body: Option<&Value>) -> Result<u16> {
    Ok(user.answer(method, &stage.scene.path(GUESTS, what), body).await?.code)
}

fn migration() -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration", "metadata": {"name": "move"},
        "spec": {"vmiName": "nobody"},
    })
}

async fn view(stage: Stage) -> Result<()> {
    let alice = user(&stage, &cluster_role("kubevirt.io:view")).await?;
    may(&stage, &alice, &[LOOK]).await?;
    may_not(&stage, &alice, &[CONNECT, CHANGE, MIGRATE]).await?;
    let machine = stage.create("Halted", &Manifest::kernel("machine")).await?;
    let seen = objects_code(&stage, &alice, Method::GET, "virtualmachines/machine", None).await?;
    ensure!(seen == 200, "looking at a machine is answered with {seen}");
    let changed = json!({"spec": {"runStrategy": "Always"}});
    let code = objects_code(&stage, &alice, Method::PATCH, "virtualmachines/machine", Some(&changed)).await?;
    ensure!(code == 403, "changing a machine is answered with {code}");
    let start = stage.scene.path(SUBRESOURCES, "virtualmachines/machine/start");
    let code = alice.answer(Method::PUT, &start, Some(&json!({}))).await?.code;
    ensure!(code == 403, "a start is answered with {code}");
    machine.reach("Stopped", 30).await?;
    machine.stays("", "", "Stopped").await
}

async fn edit(stage: Stage) -> Result<()> {
    let alice = user(&stage, &cluster_role("kubevirt.io:edit")).await?;
    may(&stage, &alice, &[LOOK, CONNECT, CHANGE]).await?;
    cannot_migrate(&stage, &alice).await?;
    let manifest = Manifest::kernel("machine").with("/spec/terminationGracePeriodSeconds", json!(1));
    let machine = stage.create("Halted", &manifest).await?;
    let start = stage.scene.path(SUBRESOURCES, "virtualmachines/machine/start");
    let answer = alice.answer(Method::PUT, &start, Some(&json!({}))).await?;
    ensure!(answer.code == 202, "a start is answered with {}: {}", answer.code, answer.body);
    machine.running().await?;
    let mut console =
        Console::open(&alice, &stage.scene.namespace, "machine", stage.scene.transcript("machine")).await?;
    console.login().await
}

async fn cannot_migrate(stage: &Stage, user: &Cluster) -> Result<()> {
    may_not(stage, user, &[MIGRATE]).await?;
    let migrations = "virtualmachineinstancemigrations";
    let code = objects_code(stage, user, Method::POST, migrations, Some(&migration())).await?;
    ensure!(code == 403, "creating a migration is answered with {code}");
    let code = objects_code(stage, user, Method::GET, migrations, None).await?;
    ensure!(code == 200, "listing migrations is answered with {code}");
    Ok(())
}

async fn admin(stage: Stage) -> Result<()> {
    let alice = user(&stage, &cluster_role("kubevirt.io:admin")).await?;
    may(&stage, &alice, &[LOOK, CONNECT, CHANGE]).await?;
    cannot_migrate(&stage, &alice).await
}

async fn migrate(stage: Stage) -> Result<()> {
    let alice = user(&stage, &cluster_role("kubevirt.io:migrate")).await?;
    may(&stage, &alice, &[MIGRATE]).await?;
    may_not(&stage, &alice, &[LOOK, CONNECT, CHANGE]).await?;
    let code =
        objects_code(&stage, &alice, Method::POST, "virtualmachineinstancemigrations", Some(&migration())).await?;
    ensure!(code != 403, "creating a migration is forbidden");
    Ok(())
}

async fn objects(stage: Stage) -> Result<()> {
    let rules = json!([{"apiGroups": ["kubevirt.io"], "resources": ["*"], "verbs": ["*"]}]);
    let alice = user_with(&stage, &rules).await?;
    wait("the right to objects", 20, || async {
        let code = objects_code(&stage, &alice, Method::GET, "virtualmachines", None).await?;
        Ok((code == 200).then_some(()))
    })
    .await?;
    may_not(&stage, &alice, &[LOOK, CONNECT, CHANGE, MIGRATE]).await
}

async fn console(stage: Stage) -> Result<()> {
    let console = "virtualmachineinstances/console";
    let rules = json!([{"apiGroups": ["subresources.kubevirt.io"], "resources": [console], "verbs": ["get"]}]);
    let alice = user_with(&stage, &rules).await?;
    may(&stage, &alice, &[&[console]]).await?;
    let others: Vec<&str> = CONNECT.iter().copied().filter(|what| *what != console).collect();
    may_not(&stage, &alice, &[&others, LOOK, CHANGE, MIGRATE]).await
}

async fn default(stage: Stage) -> Result<()> {
    let bob = stage.scene.cluster.impersonating(&format!("bob-of-{}", stage.scene.namespace))?;
    may_not(&stage, &bob, &[LOOK, CONNECT, CHANGE, MIGRATE]).await?;
    for path in [format!("{SUBRESOURCES}/version"), format!("{SUBRESOURCES}/healthz")] {
        let answer = bob.answer(Method::GET, &path, None).await?;
        ensure!(answer.code == 200, "{path} is answered with {}: {}", answer.code, answer.body);
    }
    Ok(())
}

async fn front_proxy(stage: Stage) -> Result<()> {
    let forged = [("x-remote-user", "admin"), ("x-remote-group", "system:masters")];
    let path = stage.scene.path(SUBRESOURCES, "virtualmachines/nobody/start");
    let stranger = stage.scene.cluster.anonymous()?;
    let (plain, claimed) = (
        stranger.answer(Method::PUT, &path, Some(&json!({}))).await?,
        stranger.answer_with(Method::PUT, &path, &forged, Some(&json!({}))).await?,
    );
    ensure!(matches!(plain.code, 401 | 403), "without credentials: {} {}", plain.code, plain.body);
    ensure!(claimed.code == plain.code, "with a user in a header: {} {}", claimed.code, claimed.body);
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let known =
        stage.scene.cluster.answer_with(Method::POST, reviews, &[("x-remote-user", "eve")], Some(&review)).await?;
    let name = known.body["status"]["userInfo"]["username"].as_str().context("no user name")?;
    ensure!(name != "eve", "a header makes another user of the caller");
    Ok(())
}
