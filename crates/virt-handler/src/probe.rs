//! What this node can do, found out by trying.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use ferrovirt_domain::{Accelerator, NodeFacts};
use tokio::process::Command;

/// The emulator.
pub(crate) const QEMU: &str = "qemu-system-x86_64";
/// How long a processor may take for five instructions, at each try: a node that has just started is busy, and whoever it takes for one
/// without KVM emulates all its VMs.
const KVM_TRIES: [Duration; 3] = [Duration::from_secs(5), Duration::from_secs(15), Duration::from_secs(40)];
/// How often a node that gave no answer is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(300);
/// What the five instructions make QEMU exit with: `(0x10 << 1) | 1`.
const RAN: i32 = 33;

/// What was found out about the node.
#[derive(Debug)]
pub struct Found {
    /// The facts.
    pub facts: NodeFacts,
    kvm: Kvm,
}

/// What became of a try to run something with KVM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kvm {
    Runs,
    Fails,
    /// There was no answer in time, which says nothing.
    Silent,
}

/// Asks QEMU and the kernel.
pub async fn facts() -> Found {
    let kvm = patiently(kvm).await;
    let accelerator = if kvm == Kvm::Runs { Accelerator::Kvm } else { Accelerator::Tcg };
    let facts = NodeFacts {
        accelerator,
        vhost_net: Path::new("/dev/vhost-net").exists() && accelerator == Accelerator::Kvm,
        machines: machine_types(&output(&["-machine", "help"]).await),
        ..NodeFacts::default()
    };
    Found { facts, kvm }
}

/// Tries again for as long as there is no answer, each time with more patience.
async fn patiently<F: Future<Output = Kvm>>(mut ask: impl FnMut(Duration) -> F) -> Kvm {
    for patience in KVM_TRIES {
        match ask(patience).await {
            Kvm::Silent => tracing::warn!(?patience, "QEMU does not say in time whether KVM works here"),
            answer => return answer,
        }
    }
    Kvm::Silent
}

impl Found {
    /// Returns when it turns out that KVM works after all, where nobody could say so before; else never.
    pub async fn until_kvm_runs(&self) {
        until_it_runs(self.kvm, || kvm(KVM_TRIES[KVM_TRIES.len() - 1])).await;
    }
}

async fn until_it_runs<F: Future<Output = Kvm>>(mut known: Kvm, mut ask: impl FnMut() -> F) {
    while known == Kvm::Silent {
        tokio::time::sleep(ASK_AGAIN).await;
        known = ask().await;
        if known == Kvm::Runs {
            return;
        }
    }
    std::future::pending::<()>().await;
}

async fn output(arguments: &[&str]) -> String {
    let output = Command::new(QEMU).args(arguments).stdin(Stdio::null()).output().await;
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

/// A device that opens need not run a guest: nested machines often have one that does not. So a guest of five instructions
/// says so itself, through a port that makes QEMU exit with a number. Some run those and no kernel, on a processor without what every
/// real one has: QEMU is told to insist on the features of the oldest model.
async fn kvm(patience: Duration) -> Kvm {
    if !Path::new("/dev/kvm").exists() {
        return Kvm::Fails;
    }
    let Ok(directory) = std::env::temp_dir().canonicalize() else { return Kvm::Fails };
    let rom = directory.join(format!("ferrovirt-kvm-{}.rom", std::process::id()));
    if std::fs::write(&rom, firmware()).is_err() {
        return Kvm::Fails;
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
    let answer = match qemu.spawn() {
        Ok(mut child) => match tokio::time::timeout(patience, child.wait()).await {
            Ok(Ok(status)) if status.code() == Some(RAN) => Kvm::Runs,
            Ok(_) => Kvm::Fails,
            Err(_) => Kvm::Silent,
        },
        Err(_) => Kvm::Fails,
    };
    let _ = std::fs::remove_file(&rom);
    answer
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

    #[tokio::test(start_paused = true)]
    async fn silence_is_no_answer() {
        let tries = std::cell::Cell::new(0);
        let answer = |after: usize, last: Kvm| {
            tries.set(tries.get() + 1);
            std::future::ready(if tries.get() > after { last } else { Kvm::Silent })
        };
        assert_eq!(patiently(|_| answer(0, Kvm::Fails)).await, Kvm::Fails);
        assert_eq!(tries.replace(0), 1, "an answer is an answer");
        assert_eq!(patiently(|_| answer(2, Kvm::Runs)).await, Kvm::Runs);
        tries.set(0);
        assert_eq!(patiently(|_| answer(9, Kvm::Runs)).await, Kvm::Silent);
        tries.set(0);
        until_it_runs(Kvm::Silent, || answer(4, Kvm::Runs)).await;
        assert_eq!(tries.get(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_answered_is_not_asked_again() {
        for known in [Kvm::Runs, Kvm::Fails] {
            let asked = until_it_runs(known, || async { panic!("it was asked") });
            assert!(tokio::time::timeout(ASK_AGAIN * 3, asked).await.is_err());
        }
        let fails = until_it_runs(Kvm::Silent, || async { Kvm::Fails });
        assert!(tokio::time::timeout(ASK_AGAIN * 3, fails).await.is_err());
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
