//! Requests in the wrong state: each has its code and its words, and changes nothing.

use anyhow::{Context, Result};
use blackbox::cluster::{Answer, SUBRESOURCES};
use blackbox::manifest::Manifest;
use http::Method;
use serde_json::{Value, json};

use crate::cases::Case;
use crate::machine::expect_refusal;
use crate::stage::Stage;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("conflict/absent", "A machine without a guest refuses what needs one.", absent),
        Case::new("conflict/unknown", "Machines and guests that do not exist are not found.", unknown),
        Case::new("conflict/bodies", "Options that make no sense are bad requests.", bodies),
        Case::new(
            "conflict/running",
            "A machine that runs, and one that is paused, refuse what they are already.",
            running,
        ),
        Case::new(
            "conflict/succeeded",
            "A machine whose guest has powered off refuses what needs it running.",
            succeeded,
        ),
        Case::new("conflict/failed", "A machine whose guest has crashed refuses what needs it running.", failed),
    ]
}

/// What a websocket's client says. An answer that is no refusal opens a connection, which nobody reads.
pub(super) const WEBSOCKET: [(&str, &str); 5] = [
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "ZmVycm92aXJ0IHN1aXRlIQ=="),
    ("sec-websocket-protocol", "plain.kubevirt.io"),
];

/// Asks for a subresource; `vm` and `vmi` stand for the kinds.
async fn ask(stage: &Stage, what: &str) -> Result<Answer> {
    let (kind, rest) = what.split_once('/').context("no kind")?;
    let resource = if kind == "vm" { "virtualmachines" } else { "virtualmachineinstances" };
    let path = stage.scene.path(SUBRESOURCES, &format!("{resource}/{rest}"));
    let action = rest.split_once('/').map_or("", |(_, action)| action);
    if action.starts_with("portforward") || matches!(action, "console" | "vnc") {
        return stage.scene.cluster.answer_with(Method::GET, &path, &WEBSOCKET, None).await;
    }
    let asks = matches!(action, "guestosinfo" | "userlist" | "filesystemlist" | "expand-spec" | "vnc/screenshot");
    let method = if asks { Method::GET } else { Method::PUT };
    // Every request may have options, and freeze has to.
    let body = if asks { None } else { Some(json!({})) };
    stage.scene.cluster.answer(method, &path, body.as_ref()).await
}

async fn expect_all(stage: &Stage, table: &[(&str, u16, &str)]) -> Result<()> {
    for (what, code, words) in table {
        expect_refusal(what, &ask(stage, what).await?, *code, words)?;
    }
    Ok(())
}

async fn absent(stage: Stage) -> Result<()> {
    let machine = stage.create("Manual", &Manifest::kernel("machine")).await?;
    machine.reach("Stopped", 30).await?;
    let table = [
        ("vm/machine/stop", 409, "VM is not running"),
        ("vm/machine/restart", 409, "VM is not running"),
        ("vm/machine/portforward/22", 409, ""),
        ("vm/machine/migrate", 404, "not found"),
        ("vmi/machine/pause", 404, "not found"),
        ("vmi/machine/unpause", 404, "not found"),
        ("vmi/machine/freeze", 404, "not found"),
        ("vmi/machine/unfreeze", 404, "not found"),
        ("vmi/machine/reset", 404, "not found"),
        ("vmi/machine/softreboot", 404, "not found"),
        ("vmi/machine/console", 404, "not found"),
        ("vmi/machine/vnc", 404, "not found"),
        ("vmi/machine/vnc/screenshot", 404, "not found"),
        ("vmi/machine/portforward/22", 404, "not found"),
        ("vmi/machine/guestosinfo", 404, "not found"),
        ("vmi/machine/userlist", 404, "not found"),
        ("vmi/machine/filesystemlist", 404, "not found"),
    ];
    expect_all(&stage, &table).await?;
    machine.stays("", "", "Stopped").await
}

async fn unknown(stage: Stage) -> Result<()> {
    for action in ["start", "stop", "restart", "migrate", "expand-spec", "portforward/22"] {
        let what = format!("vm/nobody/{action}");
        expect_refusal(&what, &ask(&stage, &what).await?, 404, "not found")?;
    }
    Ok(())
}

async fn bodies(stage: Stage) -> Result<()> {
    let machine = stage.create("Manual", &Manifest::kernel("machine")).await?;
    machine.reach("Stopped", 30).await?;
    machine.refuse("restart", &json!({"gracePeriodSeconds": 5}), 400, "only gracePeriod=0 is supported").await?;
    machine.refuse("restart", &json!({"gracePeriodSeconds": -1}), 400, "greater or equal to 0").await?;
    for action in ["start", "stop", "restart", "migrate"] {
        machine.refuse(action, &json!({"dryRun": 7}), 400, "").await?;
    }
    machine.refuse("addvolume", &json!({}), 400, "").await?;
    machine.refuse("removevolume", &json!({}), 400, "").await?;
    machine.stays("", "", "Stopped").await
}

async fn running(stage: Stage) -> Result<()> {
    let manifest = Manifest::kernel("machine").with("/spec/terminationGracePeriodSeconds", json!(1));
    let machine = stage.create("Manual", &manifest).await?;
    machine.reach("Stopped", 30).await?;
    machine.accept("start", &Value::Null).await?;
    let guest = machine.running().await?;
    expect_all(
        &stage,
        &[("vm/machine/start", 409, "VM is already running"), ("vmi/machine/unpause", 409, "VMI is not paused")],
    )
    .await?;
    guest.call("pause").await?;
    machine.reach("Paused", 30).await?;
    let table = [
        ("vm/machine/start", 409, "VM is already running"),
        ("vmi/machine/pause", 409, "VMI is already paused"),
        ("vmi/machine/softreboot", 409, "VMI is paused"),
        ("vmi/machine/portforward/22", 409, "paused"),
        ("vm/machine/portforward/22", 409, "paused"),
    ];
    expect_all(&stage, &table).await?;
    machine.stays(&guest.uid, "Running", "Paused").await
}

/// What every machine refuses whose guest is over.
const OVER: [(&str, u16, &str); 8] = [
    ("vm/machine/stop", 409, "VM is not running"),
    ("vm/machine/migrate", 409, "VM is not running"),
    ("vmi/machine/pause", 409, "not running"),
    ("vmi/machine/unpause", 409, "not running"),
    ("vmi/machine/freeze", 409, "not running"),
    ("vmi/machine/unfreeze", 409, "not running"),
    ("vmi/machine/softreboot", 409, "not running"),
    ("vmi/machine/vnc", 400, "not running"),
];

async fn succeeded(stage: Stage) -> Result<()> {
    let machine = stage.create("Once", &Manifest::kernel("machine")).await?;
    let (guest, mut console) = machine.login().await?;
    console.send("poweroff -f\n").await?;
    guest.reach("Succeeded", 60).await?;
    machine.reach("Stopped", 30).await?;
    let once = ("vm/machine/start", 409, "does not support manual start requests");
    expect_all(&stage, &[once]).await?;
    machine.patch(&json!({"spec": {"runStrategy": "Manual"}})).await?;
    expect_all(&stage, &OVER).await?;
    expect_all(&stage, &[("vmi/machine/console", 400, "not running")]).await?;
    machine.stays(&guest.uid, "Succeeded", "Stopped").await
}

async fn failed(stage: Stage) -> Result<()> {
    let manifest = Manifest::kernel("machine").with("/spec/domain/devices/panicDevices", json!([{"model": "isa"}]));
    let machine = stage.create("Once", &manifest).await?;
    let (guest, mut console) = machine.login().await?;
    console.send("panic\n").await?;
    guest.reach("Failed", 60).await?;
    machine.reach("Stopped", 30).await?;
    machine.patch(&json!({"spec": {"runStrategy": "Manual"}})).await?;
    expect_all(&stage, &OVER).await?;
    expect_all(&stage, &[("vmi/machine/console", 409, "")]).await?;
    machine.stays(&guest.uid, "Failed", "Stopped").await
}
