//! Where things are inside a launcher pod. Pods, domains, disks and the launcher agree through these functions only.

/// Uid and gid that the launcher, libvirt and QEMU run as.
pub const RUNTIME_USER: u32 = 107;
/// Private to the pod's processes: sockets of the guest, NVRAM, sources of volumes.
pub const PRIVATE: &str = "/var/run/kubevirt-private";
/// Shared with virt-handler.
pub const PUBLIC: &str = "/var/run/kubevirt";
/// The directory of the launcher's socket; an emptyDir of this name.
pub const SOCKETS: &str = "/var/run/kubevirt/sockets";
/// Name of the emptyDir behind [`SOCKETS`].
pub const SOCKETS_VOLUME: &str = "sockets";
/// The launcher's socket in [`SOCKETS`].
pub const LAUNCHER_SOCKET: &str = "launcher-sock";
/// Disks that live as long as the guest.
pub const EPHEMERAL: &str = "/var/run/kubevirt-ephemeral-disks";
/// libvirt's configuration, sockets, cache and logs.
pub const LIBVIRT: &str = "/var/run/libvirt";
/// Mount points of container disks and of the kernel boot image: of image volumes, or of what virt-handler mounts there.
pub const IMAGES: &str = "/var/run/kubevirt-image-volume";
/// The emptyDir with one socket for each image that a sidecar holds. The launcher does not see it.
pub const HOLDERS_VOLUME: &str = "container-disks";
/// Where sidecars see [`HOLDERS_VOLUME`]. Images are free to have anything at well-known places.
pub const HOLDERS: &str = "/ferrovirt/container-disks";
/// Where the service account's token is mounted.
pub const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The name that the image of the container disk which is volume number `index` of the VMI has in the pod.
pub fn container_disk_slot(index: usize) -> String {
    format!("disk_{index}")
}

/// The name that the kernel boot image has in the pod.
pub const KERNEL_BOOT_SLOT: &str = "kernel-boot";

/// The mount point of an image.
pub fn image(slot: &str) -> String {
    format!("{IMAGES}/{slot}")
}

/// The socket in [`HOLDERS`] of the sidecar that holds an image.
pub fn holder_socket(slot: &str) -> String {
    format!("{slot}.sock")
}

/// The mount point of the container disk that is volume number `index` of the VMI.
pub fn container_disk(index: usize) -> String {
    image(&container_disk_slot(index))
}

/// The mount point of the kernel boot image.
pub fn kernel_boot() -> String {
    image(KERNEL_BOOT_SLOT)
}

/// The mount point of a claim with a file system, and of a host disk's directory.
pub fn volume_directory(volume: &str) -> String {
    format!("{PRIVATE}/vmi-disks/{volume}")
}

/// The disk image on a claim with a file system.
pub fn volume_image(volume: &str) -> String {
    format!("{PRIVATE}/vmi-disks/{volume}/disk.img")
}

/// The device of a claim in block mode.
pub fn block_device(volume: &str) -> String {
    format!("/dev/{volume}")
}

/// Where a configMap, secret, downwardAPI or sysprep volume is mounted.
pub fn config_source(volume: &str) -> String {
    format!("{PRIVATE}/config/{volume}")
}

/// Where the secret that a cloud-init volume names is mounted: `part` is `user` or `network`.
pub fn cloud_init_secret(volume: &str, part: &str) -> String {
    format!("{PRIVATE}/cloud-init/{volume}/{part}")
}

/// Where the secret of the access credential number `index` is mounted.
pub fn access_credential(index: usize) -> String {
    format!("{PRIVATE}/access-credentials/{index}")
}

/// The qcow2 overlay that takes the writes to a read-only volume.
pub fn overlay(volume: &str) -> String {
    format!("{EPHEMERAL}/disk-data/{volume}/disk.qcow2")
}

/// An emptyDisk's image.
pub fn empty_disk(volume: &str) -> String {
    format!("{EPHEMERAL}/empty-disks/{volume}.qcow2")
}

/// The ISO made of a cloud-init, configMap, secret, serviceAccount, downwardAPI or sysprep volume.
pub fn config_media(volume: &str) -> String {
    format!("{EPHEMERAL}/config-media/{volume}.iso")
}

/// The directory of the guest's sockets.
pub fn guest_directory(uid: &str) -> String {
    format!("{PRIVATE}/{uid}")
}

/// The guest's first serial port.
pub fn serial_socket(uid: &str) -> String {
    format!("{PRIVATE}/{uid}/virt-serial0")
}

/// What the guest wrote to its first serial port.
pub fn serial_log(uid: &str) -> String {
    format!("{PRIVATE}/{uid}/virt-serial0-log")
}

/// The guest's display.
pub fn vnc_socket(uid: &str) -> String {
    format!("{PRIVATE}/{uid}/virt-vnc")
}

/// EFI variables.
pub fn nvram(name: &str) -> String {
    format!("{PRIVATE}/libvirt/qemu/nvram/{name}_VARS.fd")
}

/// The socket of the virtiofsd that serves a file system.
pub fn virtiofs_socket(name: &str) -> String {
    format!("{PUBLIC}/virtiofs-containers/{name}.sock")
}
