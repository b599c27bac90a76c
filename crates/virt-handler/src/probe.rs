//! What this node can do, found out by trying.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use ferrovirt_domain::{Accelerator, NodeFacts};
use tokio::process::Command;

/// The emulator.
pub(crate) const QEMU: &str = "qemu-system-x86_64";
/// How long a processor may take for five instructions.
const PATIENCE: Duration = Duration::from_secs(5);
/// What the five instructions make QEMU exit with: `(0x10 << 1) | 1`.
const RAN: i32 = 33;

/// Asks QEMU and the kernel.
pub async fn facts() -> NodeFacts {
    let accelerator = if kvm_runs().await { Accelerator::Kvm } else { Accelerator::Tcg };
    NodeFacts {
        accelerator,
        vhost_net: Path::new("/dev/vhost-net").exists() && accelerator == Accelerator::Kvm,
        machines: machine_types(&output(&["-machine", "help"]).await),
        ..NodeFacts::default()
    }
}

async fn output(arguments: &[&str]) -> String {
    let output = Command::new(QEMU).args(arguments).stdin(Stdio::null()).output().await;
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

/// A device that opens need not run a guest: nested machines often have one that does not. So a guest of five instructions
/// says so itself, through a port that makes QEMU exit with a number. Some run those and no kernel, on a processor without what every
/// real one has: QEMU is told to insist on the features of the oldest model.
async fn kvm_runs() -> bool {
    if !Path::new("/dev/kvm").exists() {
        return false;
    }
    let Ok(directory) = std::env::temp_dir().canonicalize() else { return false };
    let rom = directory.join(format!("ferrovirt-kvm-{}.rom", std::process::id()));
    if std::fs::write(&rom, firmware()).is_err() {
        return false;
    }
    let mut qemu = Command::new(QEMU);
    qemu.args([
        "-accel",
        "kvm",
        "-cpu",
        "kvm64,enforce",
        "-machine",
        "pc",
        "-m",
        "2",
        "-display",
        "none",
        "-nodefaults",
        "-no-reboot",
    ]);
    qemu.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=1", "-bios"]).arg(&rom);
    qemu.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let ended = match qemu.spawn() {
        Ok(mut child) => tokio::time::timeout(PATIENCE, child.wait()).await.ok().and_then(Result::ok),
        Err(_) => None,
    };
    let _ = std::fs::remove_file(&rom);
    ended.is_some_and(|status| status.code() == Some(RAN))
}

/// 64 KiB whose reset vector says: `mov al, 0x10; out 0xf4, al; hlt`.
fn firmware() -> Vec<u8> {
    let mut rom = vec![0xf4; 64 << 10];
    let reset = rom.len() - 16;
    rom[reset..reset + 5].copy_from_slice(&[0xb0, 0x10, 0xe6, 0xf4, 0xf4]);
    rom
}

/// First words of the lines, but for the heading; only machines that guests may ask for.
fn machine_types(help: &str) -> Vec<String> {
    let names = help.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    let names: BTreeSet<&str> = names.filter(|name| *name == "q35" || name.starts_with("pc-q35")).collect();
    names.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qemus_help_is_understood() {
        let machines =
            "Supported machines are:\nmicrovm  x\npc-q35-7.2  Standard PC\nq35  Standard PC (alias)\npc  old\n";
        assert_eq!(machine_types(machines), ["pc-q35-7.2", "q35"]);
    }

    #[tokio::test]
    async fn the_five_instructions_work_where_nothing_is_accelerated() {
        let directory = tempfile::tempdir().unwrap();
        let rom = directory.path().join("rom");
        std::fs::write(&rom, firmware()).unwrap();
        let mut qemu = Command::new(QEMU);
        qemu.args(["-accel", "tcg", "-machine", "pc", "-m", "2", "-display", "none", "-nodefaults", "-no-reboot"]);
        qemu.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=1", "-bios"]).arg(&rom);
        assert_eq!(qemu.status().await.unwrap().code(), Some(RAN));
    }
}
