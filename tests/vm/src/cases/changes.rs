//! Machines whose spec changes while they run, and what each start records.

use anyhow::{Result, ensure};
use blackbox::cluster::wait;
use blackbox::manifest::Manifest;
use serde_json::{Value, json};

use crate::cases::Case;
use crate::machine::Machine;
use crate::stage::{Stage, machine as machine_object};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "change/restart-required",
            "A changed template needs a restart, unless it is changed back.",
            restart_required,
        ),
        Case::new("change/revision", "Each start keeps the spec it came from, and only the last one.", revision),
        Case::new("change/generation", "A change that guests need not know leaves them, and is recorded.", generation),
        Case::new(
            "change/running-field",
            "spec.running is taken with a warning, and started and stopped by.",
            running_field,
        ),
    ]
}

fn quick() -> Manifest {
    Manifest::kernel("machine").with("/spec/terminationGracePeriodSeconds", json!(1))
}

fn cores(count: u32) -> Value {
    json!({"spec": {"template": {"spec": {"domain": {"cpu": {"cores": count}}}}}})
}

async fn restart_required(stage: Stage) -> Result<()> {
    let machine = stage.create("Always", &quick()).await?;
    let guest = machine.running().await?;
    let before = machine.get().await?["spec"]["template"]["spec"]["domain"]["cpu"].clone();
    machine.patch(&cores(2)).await?;
    machine.condition("RestartRequired", "True", 30).await?;
    machine.stays(&guest.uid, "Running", "Running").await?;
    machine.patch(&json!({"spec": {"template": {"spec": {"domain": {"cpu": before}}}}})).await?;
    machine.no_condition("RestartRequired", 30).await?;
    machine.patch(&cores(2)).await?;
    machine.condition("RestartRequired", "True", 30).await?;
    machine.accept("restart", &Value::Null).await?;
    let other = machine.running_but(&guest.uid).await?;
    machine.no_condition("RestartRequired", 30).await?;
    let count = other.get().await?["spec"]["domain"]["cpu"]["cores"].clone();
    ensure!(count == 2, "the new guest has {count} cores");
    in_step(&machine).await
}

/// The machine says that its guest is of its own generation.
async fn in_step(machine: &Machine) -> Result<()> {
    wait("the generations to agree", 30, || async {
        let object = machine.get().await?;
        let generation = &object["metadata"]["generation"];
        let status = &object["status"];
        let said = status["desiredGeneration"] == *generation && status["observedGeneration"] == *generation;
        let guest = machine.find_guest().await?.unwrap_or_default();
        let kept = &guest["metadata"]["annotations"]["kubevirt.io/vm-generation"];
        Ok((said && kept.as_str() == Some(&generation.to_string())).then_some(()))
    })
    .await
}

async fn revision(stage: Stage) -> Result<()> {
    let machine = stage.create("Always", &quick()).await?;
    let guest = machine.running().await?;
    let first = recorded(&machine).await?;
    let object = guest.get().await?;
    ensure!(object["metadata"]["labels"]["made-by"] == "suite", "the template's labels are not the guest's");
    let owner = &object["metadata"]["ownerReferences"][0];
    ensure!(owner["uid"] == machine.get().await?["metadata"]["uid"] && owner["controller"] == true, "owner is {owner}");

    machine.patch(&cores(2)).await?;
    let still = recorded(&machine).await?;
    ensure!(still == first, "a change alone has made revision {still}");
    machine.accept("restart", &Value::Null).await?;
    machine.running_but(&guest.uid).await?;
    let second = recorded(&machine).await?;
    ensure!(second != first, "the second start has the first one's revision");
    Ok(())
}

/// The revision that the guest names, which has the machine's uid in its name, is the only one, and has the spec the guest came from.
async fn recorded(machine: &Machine) -> Result<String> {
    let scene = &machine.stage.scene;
    let name = wait("the guest to name its revision", 30, || async {
        let guest = machine.find_guest().await?.unwrap_or_default();
        Ok(guest["status"]["virtualMachineRevisionName"].as_str().map(str::to_owned))
    })
    .await?;
    let uid = machine.get().await?["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    ensure!(name.starts_with(&format!("revision-start-vm-{uid}-")), "the revision is called {name}");
    let path = scene.path("/apis/apps/v1", "controllerrevisions");
    let only = wait("older revisions to be gone", 30, || async {
        let all = scene.cluster.get(&path).await?;
        let all = all["items"].as_array().cloned().unwrap_or_default();
        Ok((all.len() == 1).then(|| all[0].clone()))
    })
    .await?;
    ensure!(only["metadata"]["name"] == name.as_str(), "the revision that is kept is {}", only["metadata"]["name"]);
    ensure!(only["data"]["spec"]["template"]["spec"]["domain"].is_object(), "the revision has no spec: {only}");
    Ok(name)
}

async fn generation(stage: Stage) -> Result<()> {
    let machine = stage.create("Always", &quick()).await?;
    let guest = machine.running().await?;
    in_step(&machine).await?;
    machine.patch(&json!({"spec": {"runStrategy": "RerunOnFailure"}})).await?;
    in_step(&machine).await?;
    machine.no_condition("RestartRequired", 10).await?;
    machine.stays(&guest.uid, "Running", "Running").await
}

async fn running_field(stage: Stage) -> Result<()> {
    let mut object = machine_object("Halted", &quick());
    if let Some(spec) = object["spec"].as_object_mut() {
        spec.remove("runStrategy");
        spec.insert("running".to_owned(), json!(false));
    }
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(&file, object.to_string())?;
    let name = file.path().to_string_lossy().into_owned();
    let outcome = stage.kubectl.attempt(&["create", "-f", &name]).await?;
    ensure!(outcome.code == 0, "kubectl create: {}", outcome.text());
    ensure!(outcome.err.contains("Warning") && outcome.err.contains("running"), "no warning: {}", outcome.err);
    let machine = stage.machine("machine");
    machine.reach("Stopped", 30).await?;
    machine.accept("start", &Value::Null).await?;
    machine.running().await?;
    let spec = machine.get().await?["spec"].clone();
    ensure!(spec["running"] == true && spec["runStrategy"].is_null(), "running is {}", spec["running"]);
    machine.accept("stop", &Value::Null).await?;
    machine.stopped().await?;
    ensure!(machine.get().await?["spec"]["running"] == false);
    Ok(())
}
