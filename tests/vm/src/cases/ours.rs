//! Commands that only our virtctl has.

use anyhow::{Context, Result, anyhow, ensure};
use blackbox::manifest::Manifest;
use serde_json::{Value, json};

use crate::cases::Case;
use crate::stage::{Stage, machine as machine_object};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("ours/objects", "apply, get, wait and delete do without kubectl.", objects),
        Case::new("ours/console-log", "console --log shows what the guest said since it was started.", console_log),
        Case::new("ours/viewers", "Several may watch a console while one types.", viewers),
        Case::new("ours/validate", "validate names what is wrong with a file, without a cluster.", validate),
    ]
}

fn quick() -> Manifest {
    Manifest::kernel("machine").with("/spec/terminationGracePeriodSeconds", json!(1))
}

/// A file with an object.
fn file(object: &Value) -> Result<(tempfile::NamedTempFile, String)> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(&file, object.to_string())?;
    let name = file.path().to_string_lossy().into_owned();
    Ok((file, name))
}

async fn objects(stage: Stage) -> Result<()> {
    let virtctl = &stage.virtctl;
    let (_kept, name) = file(&machine_object("Always", &quick()))?;
    virtctl.run(&["apply", "-f", &name]).await?;
    virtctl.run(&["wait", "vm/machine", "--for=condition=Ready", "--timeout=90s"]).await?;
    let shown: Value = serde_json::from_str(&virtctl.run(&["get", "vm", "machine", "-o", "json"]).await?)?;
    ensure!(shown["status"]["printableStatus"] == "Running", "get shows {}", shown["status"]);
    let table = virtctl.run(&["get", "vm"]).await?;
    ensure!(table.starts_with("NAME") && table.contains("Running"), "get shows {table}");
    virtctl.run(&["delete", "vm", "machine"]).await?;
    stage.machine("machine").gone().await
}

async fn console_log(stage: Stage) -> Result<()> {
    let machine = stage.create("Always", &quick()).await?;
    let (_, mut console) = machine.login().await?;
    console.run("echo \"word-\"\"of-the-past\"").await?;
    drop(console);
    let log = stage.virtctl.run(&["console", "machine", "--log"]).await?;
    ensure!(log.contains("login: ") && log.contains("word-of-the-past"), "the log has {log:?}");
    Ok(())
}

async fn viewers(stage: Stage) -> Result<()> {
    let machine = stage.create("Always", &quick()).await?;
    let (guest, mut console) = machine.login().await?;
    let mut watcher = blackbox::terminal::Terminal::start(stage.virtctl.command(&["console", "machine", "--watch"]))?;
    let mut seen = Err(anyhow!("nothing was typed"));
    for _ in 0..15 {
        console.run("echo \"seen-\"\"by-both\"").await?;
        // The watcher may not have been there at the first time.
        seen = watcher.expect("seen-by-both", 2).await;
        if seen.is_ok() {
            break;
        }
    }
    seen?;
    console.run("true").await.context("the one who types has been sent away")?;
    drop(guest);
    Ok(())
}

async fn validate(stage: Stage) -> Result<()> {
    let (_good, name) = file(&machine_object("Always", &quick()))?;
    stage.virtctl.run(&["validate", "-f", &name]).await?;
    let bad = machine_object("Always", &quick().with("/spec/domain/devices/disks", json!([{"name": "no-volume"}])));
    let (_bad, name) = file(&bad)?;
    let path = "spec.template.spec.domain.devices.disks[0].name";
    stage.virtctl.refused(&["validate", "-f", &name], &[path]).await?;
    Ok(())
}
