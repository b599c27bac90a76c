//! What the launcher prepares.

use ferrovirt_domain::{disk_tasks, domain};
use ferrovirt_launcher_rpc::disks::DiskTask;

use crate::samples;

#[test]
fn every_kind_of_volume_has_its_task() {
    let sample = samples::named("volumes");
    insta::assert_json_snapshot!(disk_tasks(&sample.vmi, &sample.facts, &sample.links).unwrap());
}

#[test]
fn a_kernel_is_checked_first() {
    let sample = samples::named("kernel-boot");
    let tasks = disk_tasks(&sample.vmi, &sample.facts, &sample.links).unwrap();
    let kernel = DiskTask::KernelBoot {
        tree: "/var/run/kubevirt-image-volume/kernel-boot".to_owned(),
        kernel: Some("/boot/vmlinuz".to_owned()),
        initrd: Some("/boot/initrd".to_owned()),
    };
    assert_eq!(tasks.first(), Some(&kernel));
    assert_eq!(tasks.len(), 2);
}

#[test]
fn volumes_without_a_disk_need_nothing() {
    for name in ["shared-directories", "acpi-tables"] {
        let sample = samples::named(name);
        assert_eq!(disk_tasks(&sample.vmi, &sample.facts, &sample.links).unwrap(), [], "{name}");
    }
}

#[test]
fn every_path_of_a_task_is_in_the_domain() {
    for sample in samples::all() {
        let xml = domain(&sample.vmi, &sample.facts, &sample.links).unwrap().to_xml();
        for task in disk_tasks(&sample.vmi, &sample.facts, &sample.links).unwrap() {
            let path = match &task {
                DiskTask::ContainerDisk { overlay, .. } | DiskTask::Overlay { overlay, .. } => overlay.clone(),
                DiskTask::RawImage { path, .. }
                | DiskTask::BlockDevice { path, .. }
                | DiskTask::EmptyDisk { path, .. }
                | DiskTask::CloudInit { path, .. }
                | DiskTask::ConfigMedia { path, .. } => path.clone(),
                DiskTask::KernelBoot { tree, kernel, .. } => format!("{tree}{}", kernel.as_ref().unwrap()),
            };
            let written = [format!("\"{path}\""), format!(">{path}<")];
            assert!(written.iter().any(|path| xml.contains(path)), "{}: {path}", sample.name);
        }
    }
}

#[test]
fn a_host_name_is_the_name_up_to_the_first_dot() {
    let seed = "spec: {volumes: [{name: seed, cloudInitNoCloud: {userData: x}}], domain: {memory: {guest: 64Mi}, \
                devices: {disks: [{name: seed}]}}}";
    let vmi = samples::guest(&format!("metadata: {{name: one.two}}\n{seed}"));
    let tasks = disk_tasks(&vmi, &samples::named("small").facts, &[]).unwrap();
    let [DiskTask::CloudInit { seed, .. }] = tasks.as_slice() else { panic!("{tasks:?}") };
    assert_eq!((seed.hostname.as_str(), seed.instance_id.as_str()), ("one", "one.two.default"));
}
