//! Objects of guests, built up from the smallest one.

use serde_json::{Value, json};

/// The kernel and initrd of the test guest; `images/guest/build.sh` makes it.
pub const KERNEL_IMAGE: &str = "ferrovirt.io/guest-kernel:test";
/// Its disk.
pub const DISK_IMAGE: &str = "ferrovirt.io/guest:test";
/// A disk that names a file of the host as its backing file.
pub const HOSTILE_IMAGE: &str = "ferrovirt.io/guest-hostile:test";

/// A guest's object in the making.
#[derive(Clone)]
pub struct Manifest(Value);

impl Manifest {
    /// A guest that boots kernel and initrd: the fastest way to a login. It has one masqueraded interface and no disk.
    pub fn kernel(name: &str) -> Self {
        let mut manifest = Self::bare(name);
        manifest.0["spec"]["domain"]["firmware"] = json!({
            "kernelBoot": {
                // A guest that waits for a busy processor must not take its timer for a broken one.
                "kernelArgs": "console=ttyS0 quiet no_timer_check cryptomgr.notests",
                "container": {
                    "image": KERNEL_IMAGE,
                    "imagePullPolicy": "IfNotPresent",
                    "kernelPath": "/boot/vmlinuz",
                    "initrdPath": "/boot/initrd",
                },
            },
        });
        manifest
    }

    /// A guest that boots from its container disk.
    pub fn disk(name: &str) -> Self {
        Self::bare(name).container_disk("root", DISK_IMAGE)
    }

    fn bare(name: &str) -> Self {
        Self(json!({
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": {"name": name},
            "spec": {
                "terminationGracePeriodSeconds": 10,
                "domain": {
                    "memory": {"guest": "160Mi"},
                    "devices": {
                        "disks": [],
                        "interfaces": [{"name": "default", "masquerade": {}}],
                    },
                },
                "networks": [{"name": "default", "pod": {}}],
                "volumes": [],
            },
        }))
    }

    /// Sets a field by its JSON pointer; fields on the way are made.
    pub fn with(mut self, pointer: &str, value: Value) -> Self {
        let mut place = &mut self.0;
        for part in pointer.trim_start_matches('/').split('/') {
            place = match part.parse::<usize>() {
                Ok(index) if place.is_array() => &mut place[index],
                _ => &mut place[part],
            };
        }
        *place = value;
        self
    }

    /// Adds a volume and a virtio disk for it.
    pub fn volume(self, name: &str, source: Value) -> Self {
        self.volume_on(name, source, json!({"disk": {"bus": "virtio"}}))
    }

    /// Adds a volume and a disk for it, as `disk`, `cdrom` or `lun`; the serial is the volume's name.
    pub fn volume_on(mut self, name: &str, source: Value, device: Value) -> Self {
        let named = |mut object: Value| {
            object["name"] = json!(name);
            object
        };
        let mut disk = named(device);
        disk["serial"] = json!(name);
        push(&mut self.0["spec"]["domain"]["devices"]["disks"], disk);
        push(&mut self.0["spec"]["volumes"], named(source));
        self
    }

    /// Adds a container disk.
    pub fn container_disk(self, name: &str, image: &str) -> Self {
        self.volume(name, json!({"containerDisk": {"image": image, "imagePullPolicy": "IfNotPresent"}}))
    }

    /// Adds a NoCloud seed.
    pub fn user_data(self, user_data: &str) -> Self {
        self.volume("seed", json!({"cloudInitNoCloud": {"userData": user_data}}))
    }

    /// The object.
    pub fn json(&self) -> &Value {
        &self.0
    }
}

fn push(list: &mut Value, item: Value) {
    if let Some(list) = list.as_array_mut() {
        list.push(item);
    }
}

/// A claim of the default storage class.
pub fn claim(name: &str, size: &str, mode: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "volumeMode": mode,
            "resources": {"requests": {"storage": size}},
        },
    })
}

/// A claim of a file system that several nodes may use at once.
pub fn shared_claim(name: &str, size: &str) -> Value {
    let mut object = claim(name, size, "Filesystem");
    object["spec"]["accessModes"] = json!(["ReadWriteMany"]);
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_makes_what_is_missing() {
        let manifest =
            Manifest::kernel("a").with("/spec/domain/cpu/cores", json!(2)).with("/spec/networks/0/name", json!("n"));
        assert_eq!(manifest.json()["spec"]["domain"]["cpu"]["cores"], 2);
        assert_eq!(manifest.json()["spec"]["networks"][0]["name"], "n");
    }
}
