//! A real libvirt without privileges takes the samples, starts some of them, and keeps every address that we chose.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use ferrovirt_domain::{disk_tasks, domain};
use ferrovirt_launcher_rpc::disks::DiskTask;
use ferrovirt_launcher_rpc::paths;

use crate::samples::{self, Sample};

/// Samples that are started, not only defined: together they have every kind of device that needs nothing special of the machine.
const STARTED: [&str; 12] = [
    "buses",
    "clock",
    "cpu",
    "efi",
    "everything",
    "interfaces",
    "io-threads-auto",
    "secure-boot",
    "small",
    "transitional",
    "typical",
    "volumes",
];

#[test]
fn libvirt_takes_and_starts_the_samples() {
    let directory = tempfile::tempdir().unwrap();
    let samples: Vec<Sample> = samples::all()
        .into_iter()
        .filter(|sample| !["kvm", "newer"].iter().any(|other| sample.name.starts_with(other)))
        .collect();
    let said = run(&script(&samples, directory.path()));
    for sample in &samples {
        assert!(said.lines().any(|line| line == format!("defined {}", sample.name)), "{}: {said}", sample.name);
    }
    for name in STARTED {
        assert!(said.lines().any(|line| line == format!("started {name}")), "{name}: {said}");
        let read = |kind: &str| std::fs::read_to_string(directory.path().join(format!("{name}.{kind}"))).unwrap();
        assert_eq!(addresses(&read("live")), addresses(&read("xml")), "{name}: libvirt chose or changed an address");
    }
}

/// What the shell does for all samples.
fn script(samples: &[Sample], directory: &Path) -> String {
    let mut script = format!("{}\nprivate_directories\nstart_libvirt\n", include_str!("libvirtd.sh"));
    for sample in samples {
        let domain = domain(&sample.vmi, &sample.facts, &sample.links).unwrap();
        let file = directory.join(format!("{}.xml", sample.name));
        std::fs::write(&file, domain.to_xml()).unwrap();
        let (name, file) = (&sample.name, file.display());
        let mut steps = String::new();
        if STARTED.contains(&name.as_str()) {
            steps = preparation(sample);
            let live = directory.join(format!("{name}.live"));
            writeln!(steps, "start {name} {} {}", domain.name(), live.display()).unwrap();
        }
        writeln!(script, "if define {name} {file}; then\n{steps}virsh undefine --nvram {}\nfi", domain.name()).unwrap();
    }
    script
}

/// What handler and launcher do before a guest starts. The disks come from the tasks: if they named other files than the domain,
/// the guest would not start.
fn preparation(sample: &Sample) -> String {
    let uid = sample.vmi.metadata.uid.as_deref().unwrap();
    let mut steps = format!("directory {}\n", paths::guest_directory(uid));
    let nvram = paths::nvram("any");
    writeln!(steps, "directory {}", Path::new(&nvram).parent().unwrap().display()).unwrap();
    for link in &sample.links {
        writeln!(steps, "tap {} {}", link.tap, link.queues).unwrap();
    }
    for task in disk_tasks(&sample.vmi, &sample.facts, &sample.links).unwrap() {
        let step = match task {
            DiskTask::ContainerDisk { overlay, tree, .. } => {
                format!("image raw {tree}/disk.img\noverlay {tree}/disk.img {overlay}")
            }
            DiskTask::Overlay { backing, overlay, .. } => {
                let kind = if backing.starts_with("/dev") { "device" } else { "image raw" };
                format!("{kind} {backing}\noverlay {backing} {overlay}")
            }
            DiskTask::RawImage { path, .. } | DiskTask::CloudInit { path, .. } | DiskTask::ConfigMedia { path, .. } => {
                format!("image raw {path}")
            }
            DiskTask::BlockDevice { path, .. } => format!("device {path}"),
            DiskTask::EmptyDisk { path, .. } => format!("image qcow2 {path}"),
            DiskTask::KernelBoot { .. } => panic!("kernels are not started here"),
        };
        writeln!(steps, "{step}").unwrap();
    }
    steps
}

/// Runs it in namespaces of its own; whatever it started ends with it.
fn run(script: &str) -> String {
    let output = Command::new("unshare")
        .args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", script])
        .stdin(Stdio::null())
        .output()
        .expect("unshare is installed");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}\n{said}{}", output.status, String::from_utf8_lossy(&output.stderr));
    said.into_owned()
}

/// The PCI addresses in a document, sorted.
fn addresses(xml: &str) -> Vec<String> {
    let lines = xml.lines().map(str::trim).filter(|line| line.contains("<address type=") && line.contains("pci"));
    let mut addresses: Vec<String> = lines.map(|line| line.replace('\'', "\"")).collect();
    addresses.sort();
    addresses
}
