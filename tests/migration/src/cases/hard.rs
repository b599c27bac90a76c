//! Guests that change their memory faster than it is sent, and what policies allow then.

use anyhow::{Result, bail};
use blackbox::cluster::wait;
use blackbox::guest::Guest;
use serde_json::{Value, json};

use crate::stage::Stage;

/// A guest that changes more in a second than the policies below let through.
async fn dirtying(stage: &Stage) -> Result<Guest> {
    let guest = stage.worker("worker", &["dirty-memory 48 40 &"]).await?;
    wait("its memory to change", 60, || async { Ok((guest.count().await?.dirtied > 0).then_some(())) }).await?;
    Ok(guest)
}

/// Slow, and soon out of time; with more allowed.
fn policy_of(more: &Value) -> Value {
    let mut spec = json!({"bandwidthPerMigration": "6Mi", "completionTimeoutPerGiB": 20});
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    spec
}

/// Moves such a guest, and wants it to arrive in a mode.
async fn arrives(stage: &Stage, guest: &Guest, mode: &str) -> Result<()> {
    let count = guest.count().await?;
    let ended = guest.moved().await?;
    if ended.state["mode"] != mode {
        bail!("it moved in another mode: {}", ended.state);
    }
    guest.no_condition("Paused", 20).await?;
    guest.goes_on(count).await?;
    guest.records("vda").await?;
    stage.tidy(guest).await
}

pub(super) async fn post_copy(stage: Stage) -> Result<()> {
    let guest = dirtying(&stage).await?;
    stage.with_policy(policy_of(&json!({"allowPostCopy": true})), arrives(&stage, &guest, "PostCopy")).await
}

pub(super) async fn pause(stage: Stage) -> Result<()> {
    let guest = dirtying(&stage).await?;
    let policy = policy_of(&json!({"allowPostCopy": false, "allowWorkloadDisruption": true}));
    stage.with_policy(policy, arrives(&stage, &guest, "Paused")).await
}

pub(super) async fn timeout(stage: Stage) -> Result<()> {
    let guest = dirtying(&stage).await?;
    let work = async {
        let (count, node) = (guest.count().await?, guest.node().await?);
        let ended = guest.migrate().await?.end(180).await?;
        if ended.phase != "Failed" || ended.reason().is_empty() {
            bail!("it is {} for the reason {:?}", ended.phase, ended.reason());
        }
        if guest.node().await? != node {
            bail!("the move failed, and the guest is on another node");
        }
        guest.goes_on(count).await?;
        guest.records("vda").await?;
        stage.tidy(&guest).await?;
        let why = stage.virtctl.run(&["why", "vmi/worker"]).await?;
        if !why.contains(ended.reason()) {
            bail!("virtctl why does not tell why the move failed: {why}");
        }
        Ok(())
    };
    stage.with_policy(policy_of(&json!({"allowWorkloadDisruption": false})), work).await?;
    // Without the policy it can.
    guest.moved().await.map(drop)
}

pub(super) async fn policy(stage: Stage) -> Result<()> {
    let guest = stage.worker("worker", &[]).await?;
    let spec = json!({"bandwidthPerMigration": "64Mi", "completionTimeoutPerGiB": 321, "allowAutoConverge": true});
    let state = stage.with_policy(spec, async { Ok(guest.moved().await?.state) }).await?;
    let used = &state["migrationConfiguration"];
    if state["migrationPolicyName"] != stage.scene.namespace.as_str() {
        bail!("the record names another policy: {state}");
    }
    for (field, wanted) in [
        ("bandwidthPerMigration", json!("64Mi")),
        ("completionTimeoutPerGiB", json!(321)),
        ("allowAutoConverge", json!(true)),
    ] {
        if used[field] != wanted {
            bail!("{field} is {}, not {wanted}, in {used}", used[field]);
        }
    }
    // What the policy does not say is as in the installation.
    if used["progressTimeout"] != 150 {
        bail!("progressTimeout is {}", used["progressTimeout"]);
    }
    let state = guest.moved().await?.state;
    if state["migrationPolicyName"].is_string() {
        bail!("the policy is gone and still named: {state}");
    }
    Ok(())
}
