//! What users do with virtctl. All of it holds for KubeVirt's own virtctl as well, so nothing here is about a command that only ours has.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use blackbox::cluster::wait;
use blackbox::console::Console;
use blackbox::manifest::{DISK_IMAGE, Manifest};
use blackbox::program::Outcome;
use blackbox::terminal::Terminal;
use blackbox::web;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::cases::Case;
use crate::stage::Stage;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("virtctl/power", "start, restart and stop do what they say.", power),
        Case::new("virtctl/force", "stop --force and restart --force wait for no guest.", force),
        Case::new("virtctl/pause", "start --paused, unpause and pause, of machines and of guests.", pause),
        Case::new("virtctl/dry-run", "Nothing happens in a dry run.", dry_run),
        Case::new("virtctl/refusals", "What is refused ends with an error that says why.", refusals),
        Case::new("virtctl/forbidden", "Who may not is told which right is missing.", forbidden),
        Case::new("virtctl/console", "A console takes a login, and Ctrl-] leaves it.", console),
        Case::new("virtctl/screen", "A screenshot is a picture, and a VNC proxy speaks RFB.", screen),
        Case::new("virtctl/forward", "Ports of the guest are here, on a port and on standard input.", forward),
        Case::new("virtctl/ssh", "ssh runs a command in the guest, and scp takes a file there and back.", ssh),
        Case::new("virtctl/agent", "What the guest says about its system, users and file systems.", agent),
        Case::new("virtctl/reboot", "soft-reboot and reset boot the same guest again.", reboot),
        Case::new("virtctl/create", "create vm writes what kubectl applies, and it starts.", create),
        Case::new("virtctl/expand", "expand shows the machine of a name and of a file.", expand),
        Case::new("virtctl/version", "version says which client and which server.", version),
    ]
}

fn quick() -> Manifest {
    Manifest::kernel("machine").with("/spec/terminationGracePeriodSeconds", json!(1))
}

async fn power(stage: Stage) -> Result<()> {
    // Time enough for a guest that listens.
    let manifest = Manifest::kernel("machine").with("/spec/terminationGracePeriodSeconds", json!(120));
    let machine = stage.create("Halted", &manifest).await?;
    machine.reach("Stopped", 30).await?;
    let said = stage.virtctl.run(&["start", "machine"]).await?;
    ensure!(said.trim() == "VM machine was scheduled to start", "start says {said:?}");
    let (guest, mut console) = machine.login().await?;
    let said = stage.virtctl.run(&["restart", "machine"]).await?;
    ensure!(said.trim() == "VM machine was scheduled to restart", "restart says {said:?}");
    asked_to_power_off(&mut console).await?;
    let other = machine.running_but(&guest.uid).await?;
    let mut console = other.login().await?;
    let said = stage.virtctl.run(&["stop", "machine"]).await?;
    ensure!(said.trim() == "VM machine was scheduled to stop", "stop says {said:?}");
    asked_to_power_off(&mut console).await?;
    machine.stopped().await?;
    ensure!(machine.strategy().await? == "Halted");
    Ok(())
}

async fn asked_to_power_off(console: &mut Console) -> Result<()> {
    console.expect("guest: poweroff", Duration::from_secs(60)).await.context("the guest was not asked to power off")?;
    Ok(())
}

async fn force(stage: Stage) -> Result<()> {
    let manifest = Manifest::kernel("machine").with("/spec/terminationGracePeriodSeconds", json!(600));
    let machine = stage.create("Always", &manifest).await?;
    let (guest, mut console) = machine.login().await?;
    console.run("ignore-acpi").await?;
    stage.virtctl.run(&["restart", "machine", "--force", "--grace-period=0"]).await?;
    let other = machine.running_but(&guest.uid).await?;
    let mut console = other.login().await?;
    console.run("ignore-acpi").await?;
    stage.virtctl.run(&["stop", "machine", "--force", "--grace-period=0"]).await?;
    machine.stopped().await
}

async fn pause(stage: Stage) -> Result<()> {
    let machine = stage.create("Manual", &quick()).await?;
    machine.reach("Stopped", 30).await?;
    stage.virtctl.run(&["start", "machine", "--paused"]).await?;
    machine.reach("Paused", 90).await?;
    for kind in ["vm", "vmi"] {
        let said = stage.virtctl.run(&["unpause", kind, "machine"]).await?;
        ensure!(said.contains("machine was scheduled to unpause"), "unpause {kind} says {said:?}");
        machine.reach("Running", 30).await?;
        let said = stage.virtctl.run(&["pause", kind, "machine"]).await?;
        ensure!(said.contains("machine was scheduled to pause"), "pause {kind} says {said:?}");
        machine.reach("Paused", 30).await?;
    }
    Ok(())
}

async fn dry_run(stage: Stage) -> Result<()> {
    let machine = stage.create("Halted", &quick()).await?;
    machine.reach("Stopped", 30).await?;
    stage.virtctl.run(&["start", "machine", "--dry-run"]).await?;
    machine.stays("", "", "Stopped").await?;
    stage.virtctl.run(&["start", "machine"]).await?;
    let guest = machine.running().await?;
    for command in [&["stop", "machine"][..], &["restart", "machine"], &["pause", "vm", "machine"]] {
        stage.virtctl.run(&[command, &["--dry-run"]].concat()).await?;
    }
    machine.stays(&guest.uid, "Running", "Running").await
}

async fn refusals(stage: Stage) -> Result<()> {
    let machine = stage.create("Manual", &quick()).await?;
    machine.reach("Stopped", 30).await?;
    let virtctl = &stage.virtctl;
    virtctl.refused(&["stop", "machine"], &["machine", "VM is not running"]).await?;
    virtctl.refused(&["restart", "machine"], &["machine", "VM is not running"]).await?;
    virtctl.refused(&["start", "nobody"], &["nobody", "not found"]).await?;
    virtctl.refused(&["pause", "vmi", "nobody"], &["nobody", "not found"]).await?;
    virtctl.refused(&["migrate", "machine"], &["machine"]).await?;
    // KubeVirt's does not read what the server says about this one.
    virtctl.refused(&["guestosinfo", "nobody"], &["nobody"]).await?;
    virtctl.refused(&["start"], &["arg"]).await?;
    machine.stays("", "", "Stopped").await?;
    virtctl.run(&["start", "machine"]).await?;
    machine.running().await?;
    virtctl.refused(&["start", "machine"], &["VM is already running"]).await?;
    virtctl.refused(&["unpause", "vm", "machine"], &["VMI is not paused"]).await?;
    Ok(())
}

async fn forbidden(stage: Stage) -> Result<()> {
    let machine = stage.create("Halted", &quick()).await?;
    machine.reach("Stopped", 30).await?;
    let words = ["virtualmachines/start", "forbidden"];
    stage.virtctl.refused(&["start", "machine", "--as", "nobody-special"], &words).await?;
    machine.stays("", "", "Stopped").await
}

async fn console(stage: Stage) -> Result<()> {
    let machine = stage.create("Always", &quick()).await?;
    machine.running().await?;
    let mut terminal = Terminal::start(stage.virtctl.command(&["console", "machine"]))?;
    terminal.nudge("\n", "login: ", 120).await?;
    terminal.send("root\n")?;
    terminal.expect("# ", 30).await?;
    terminal.send("echo \"one\"\"two\"\n")?;
    terminal.expect("onetwo", 30).await?;
    terminal.send("\x1d")?;
    let code = terminal.end(30).await?;
    ensure!(code == 0, "it ended with {code}: {}", terminal.screen());
    Ok(())
}

async fn screen(stage: Stage) -> Result<()> {
    let machine = stage.create("Always", &quick()).await?;
    machine.running().await?;
    let place = tempfile::tempdir()?;
    let file = place.path().join("screen.png");
    stage.virtctl.run(&["vnc", "screenshot", "machine", "--file", &file.to_string_lossy()]).await?;
    let picture = std::fs::read(&file)?;
    ensure!(
        picture.starts_with(b"\x89PNG\r\n\x1a\n"),
        "the screenshot is no PNG: {:?}",
        &picture[..picture.len().min(16)]
    );
    ensure!(picture.windows(4).any(|part| part == b"IEND"), "the screenshot is cut off after {} bytes", picture.len());

    let port = free_port()?;
    let _proxy = stage.virtctl.start(&["vnc", "machine", "--proxy-only", "--port", &port.to_string()])?;
    let hello = wait("a VNC server at the proxy", 30, || async {
        let Ok(mut stream) = tokio::net::TcpStream::connect(("127.0.0.1", port)).await else { return Ok(None) };
        let mut hello = [0; 4];
        let read = tokio::time::timeout(Duration::from_secs(20), stream.read_exact(&mut hello)).await;
        read.context("the proxy says nothing")?.context("the proxy has hung up")?;
        Ok(Some(hello))
    })
    .await?;
    ensure!(&hello == b"RFB ", "the proxy says {hello:?}");
    Ok(())
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

async fn forward(stage: Stage) -> Result<()> {
    let machine = stage.create("Always", &quick()).await?;
    let (_, mut console) = machine.login().await?;
    console.run_until("lease", "ip='10.0.2.2'", 30).await?;
    console.run("serve").await?;
    let port = free_port()?;
    let ports = format!("{port}:8080");
    for target in ["vm/machine", "vmi/machine"] {
        let forwarder = stage.virtctl.start(&["port-forward", target, &ports])?;
        let name = wait("the guest behind the port", 30, || async {
            Ok(web::ask("127.0.0.1", port, "/").await.ok().filter(|name| !name.is_empty()))
        })
        .await
        .with_context(|| format!("port-forward {target}"))?;
        ensure!(name == "machine", "{name:?} answers");
        stop(forwarder).await?;
    }

    let mut child = stage.virtctl.command(&["port-forward", "--stdio=true", "vm/machine", "8080"]);
    let mut child = child.stdin(std::process::Stdio::piped()).spawn()?;
    let (mut to, mut from) =
        (child.stdin.take().context("no standard input")?, child.stdout.take().context("no output")?);
    to.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
    let mut answer = Vec::new();
    let mut buffer = [0; 1024];
    let read = async {
        while !answer.ends_with(b"machine\n") {
            let length = from.read(&mut buffer).await?;
            ensure!(length > 0, "it ended after {:?}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&buffer[..length]);
        }
        Ok(())
    };
    tokio::time::timeout(Duration::from_secs(30), read).await.context("port-forward --stdio")??;
    Ok(())
}

async fn stop(mut child: tokio::process::Child) -> Result<()> {
    child.kill().await.context("ending virtctl")
}

async fn ssh(stage: Stage) -> Result<()> {
    let place = tempfile::tempdir()?;
    let key = place.path().join("key");
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status();
    ensure!(made.context("ssh-keygen is needed (package openssh-client)")?.success(), "ssh-keygen failed");
    let public = std::fs::read_to_string(key.with_extension("pub"))?;
    let user_data = format!("#cloud-config\nuser: alice\nssh_authorized_keys:\n  - {}\n", public.trim());
    let machine = stage.create("Always", &quick().user_data(&user_data)).await?;
    let (_, mut console) = machine.login().await?;
    console.run_until("lease", "ip='10.0.2.2'", 30).await?;

    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (key, hosts) = (text(&key), text(&place.path().join("hosts")));
    let quiet = "--local-ssh-opts=-o StrictHostKeyChecking=no";
    let common = ["--identity-file", &key, "--known-hosts", &hosts, quiet, "--local-ssh-opts=-o BatchMode=yes"];
    let command = ["ssh", "alice@vm/machine", "--command", "echo $((6 * 7)) by $(whoami)"];
    let said = stage.virtctl.run(&[&command[..], &common[..]].concat()).await?;
    ensure!(said.trim() == "42 by alice", "ssh says {said:?}");

    let (here, back) = (place.path().join("here"), place.path().join("back"));
    std::fs::write(&here, "there and back\n")?;
    let copies =
        [(text(&here), "alice@vm/machine:there".to_owned()), ("alice@vm/machine:there".to_owned(), text(&back))];
    for (from, to) in copies {
        // Dropbear has no SFTP server.
        let command = ["scp", &from, &to, "--local-ssh-opts=-O"];
        stage.virtctl.run(&[&command[..], &common[..]].concat()).await?;
    }
    let copy = std::fs::read_to_string(&back)?;
    ensure!(copy == "there and back\n", "what came back is {copy:?}");
    Ok(())
}

async fn agent(stage: Stage) -> Result<()> {
    let machine = stage.create("Always", &quick().user_data("#cloud-config\nhostname: told-by-seed\n")).await?;
    let (guest, _console) = machine.login().await?;
    guest.condition("AgentConnected", "True", 90).await?;
    machine.condition("AgentConnected", "True", 30).await?;
    told(&stage, "guestosinfo", |info| info["hostname"] == "told-by-seed" && info["os"]["id"] == "ferrovirt-guest")
        .await?;
    told(&stage, "userlist", |users| any(users, |user| user["userName"] == "root")).await?;
    told(&stage, "fslist", |systems| any(systems, |system| system["mountPoint"] == "/mnt/cidata")).await
}

fn any(list: &Value, wanted: impl Fn(&Value) -> bool) -> bool {
    list["items"].as_array().is_some_and(|items| items.iter().any(wanted))
}

/// Waits until a question is answered as it should be.
async fn told(stage: &Stage, question: &str, right: impl Fn(&Value) -> bool) -> Result<()> {
    let answered = |outcome: &Outcome| serde_json::from_str(&outcome.out).is_ok_and(|answer| right(&answer));
    stage.virtctl.until(&[question, "machine"], 60, answered).await?;
    Ok(())
}

async fn reboot(stage: Stage) -> Result<()> {
    let machine = stage.create("Always", &quick()).await?;
    let (guest, mut console) = machine.login().await?;
    let mut boots = vec![boot(&mut console).await?];
    for command in ["reset", "soft-reboot"] {
        if command == "soft-reboot" {
            // The agent, which has to be there again after the reset, or ACPI.
            guest.condition("AgentConnected", "True", 90).await?;
        }
        stage.virtctl.run(&[command, "machine"]).await?;
        console.login().await.with_context(|| format!("after {command}"))?;
        let id = boot(&mut console).await?;
        ensure!(!boots.contains(&id), "{command} has not booted the guest");
        boots.push(id);
        machine.stays(&guest.uid, "Running", "Running").await?;
    }
    Ok(())
}

async fn boot(console: &mut Console) -> Result<String> {
    console.run("cat /proc/sys/kernel/random/boot_id").await
}

async fn create(stage: Stage) -> Result<()> {
    let disk = format!("src:{DISK_IMAGE}");
    let arguments = [
        "create",
        "vm",
        "--name",
        "machine",
        "--run-strategy",
        "Manual",
        "--memory",
        "160Mi",
        "--termination-grace-period",
        "1",
        "--volume-containerdisk",
        &disk,
    ];
    let written = stage.virtctl.run(&arguments).await?;
    stage.kubectl.run_with(&["apply", "-f", "-"], &written).await.with_context(|| format!("applying {written}"))?;
    let machine = stage.machine("machine");
    machine.reach("Stopped", 30).await?;
    let object = machine.get().await?;
    let spec = &object["spec"]["template"]["spec"];
    ensure!(object["spec"]["runStrategy"] == "Manual", "the strategy is {}", object["spec"]["runStrategy"]);
    ensure!(spec["domain"]["memory"]["guest"] == "160Mi", "the memory is {}", spec["domain"]["memory"]);
    ensure!(
        spec["terminationGracePeriodSeconds"] == 1,
        "the grace period is {}",
        spec["terminationGracePeriodSeconds"]
    );
    ensure!(spec["volumes"][0]["containerDisk"]["image"] == DISK_IMAGE, "the volumes are {}", spec["volumes"]);
    stage.virtctl.run(&["start", "machine"]).await?;
    machine.running().await?;
    Ok(())
}

async fn expand(stage: Stage) -> Result<()> {
    let machine = stage.create("Halted", &quick()).await?;
    let shown: Value = serde_json::from_str(&stage.virtctl.run(&["expand", "--vm", "machine", "-o", "json"]).await?)?;
    let stored = machine.get().await?;
    ensure!(shown["metadata"]["name"] == "machine", "expand shows {shown}");
    let devices = |machine: &Value| machine["spec"]["template"]["spec"]["domain"]["devices"].clone();
    ensure!(devices(&shown) == devices(&stored), "expand shows {shown}");
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(&file, crate::stage::machine("Halted", &quick()).to_string())?;
    let name = file.path().to_string_lossy().into_owned();
    let shown = stage.virtctl.run(&["expand", "--file", &name, "--output", "yaml"]).await?;
    let shown: Value = serde_saphyr::from_str(&shown).context("expand writes no YAML")?;
    ensure!(shown["kind"] == "VirtualMachine" && shown["spec"]["runStrategy"] == "Halted", "expand shows {shown}");
    Ok(())
}

async fn version(stage: Stage) -> Result<()> {
    let said = stage.virtctl.run(&["version"]).await?;
    ensure!(said.contains("Client Version: ") && said.contains("Server Version: "), "version says {said:?}");
    let said = stage.virtctl.run(&["version", "--client"]).await?;
    ensure!(said.contains("Client Version: ") && !said.contains("Server Version: "), "version --client says {said:?}");
    Ok(())
}
