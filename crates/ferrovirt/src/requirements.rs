//! What a machine needs to run guests, checked before anything is started.

use anyhow::bail;

/// Programs and the Debian packages that have them.
const PROGRAMS: &[(&str, &str)] = &[
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("qemu-img", "qemu-utils"),
    ("libvirtd", "libvirt-daemon"),
    ("crun", "crun"),
    ("conmon", "conmon"),
    ("nft", "nftables"),
    ("ip", "iproute2"),
];

/// Names everything that is missing at once, and how to get it.
pub(crate) fn check() -> anyhow::Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!(
            "guests need root: network namespaces, bridges and cgroups. Run it as root, or start the API server alone with --nodes 0"
        );
    }
    let missing: Vec<_> = PROGRAMS.iter().filter(|(program, _)| !is_there(program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let programs: Vec<_> = missing.iter().map(|(program, _)| *program).collect();
    let packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    bail!(
        "guests need {}, which this machine does not have. On Debian and Ubuntu: apt-get install {}. The API server alone starts with --nodes 0",
        programs.join(", "),
        packages.join(" ")
    );
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    directories.into_iter().any(|directory| directory.join(program).is_file())
}
