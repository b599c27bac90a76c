//! The cases: a table, and a file for each area.

mod boot;
mod network;
mod power;
mod refusals;
mod seeds;
mod volumes;

use blackbox::scene::Scene;
use blackbox::suite::{self, Need};

type Case = suite::Case<Scene>;

/// `case!("area/name", function, "about")`, with `alone` at the end where nothing else may run.
macro_rules! case {
    ($name:literal, $run:path, $about:literal) => {
        Case::new($name, $about, $run)
    };
    ($name:literal, $run:path, $about:literal, alone) => {
        Case::new($name, $about, $run).alone()
    };
}

/// All cases.
pub(crate) fn all() -> Vec<Case> {
    vec![
        case!(
            "boot/kernel",
            boot::kernel,
            "A guest boots kernel and initrd, takes a login, and its status says what it is."
        ),
        case!(
            "boot/disk",
            boot::disk,
            "A guest boots from a container disk with BIOS; its console is in the log of guest-console-log."
        ),
        case!("boot/efi", boot::efi, "A guest boots from a container disk with EFI."),
        case!("boot/agent", boot::agent, "What the guest agent says is in the status and in the subresources."),
        case!(
            "network/masquerade",
            network::masquerade,
            "DHCP, and traffic between guest, node and another guest, with masquerade."
        ),
        case!(
            "network/bridge",
            network::bridge,
            "DHCP, and traffic between guest, node and another guest, with bridge."
        ),
        case!("network/ports", network::ports, "Only the named ports of a masqueraded guest can be reached."),
        case!("network/own-mac", network::own_mac, "Traffic of a bridged guest with a hardware address of its own."),
        case!("network/stolen", network::stolen, "A bridged guest takes another's address, and nobody is taken in.")
            .needing(Need::GuardedNetwork),
        case!("network/policies", network::policies, "Who reaches a guest is who its network policies let in.")
            .needing(Need::GuardedNetwork),
        case!("network/ipv6", network::ipv6, "DHCPv6, and traffic over IPv6, with masquerade.").needing(Need::Ipv6),
        case!(
            "volumes/ephemeral",
            volumes::ephemeral_disks,
            "Container disk and empty disk: size, serial, writable, gone with the guest."
        ),
        case!(
            "volumes/claim",
            volumes::claim_with_file_system,
            "A claim with a file system keeps what guests write; an ephemeral copy does not."
        ),
        case!("volumes/block", volumes::claim_with_block_mode, "A claim in block mode keeps what guests write.")
            .needing(Need::BlockClaims),
        case!(
            "volumes/host-disk",
            volumes::host_disk,
            "A host disk is made, and keeps what guests write; without its gate it is refused."
        ),
        case!(
            "volumes/config",
            volumes::config,
            "Config map, secret, service account, downward API and sysprep are media in the guest."
        ),
        case!(
            "seeds/no-cloud",
            seeds::no_cloud,
            "User, password, key, host name, files and commands of a NoCloud seed are applied."
        ),
        case!("seeds/secret", seeds::secret, "User data and network data come from secrets."),
        case!("seeds/network-data", seeds::network_data, "Network data sets a static address."),
        case!(
            "seeds/config-drive",
            seeds::config_drive,
            "A config drive has user data and metadata in OpenStack's places."
        ),
        case!(
            "power/pause",
            power::pause,
            "A paused guest does nothing, says so in its conditions, and goes on where it was."
        ),
        case!("power/off", power::off, "A guest that powers off has succeeded, and its pod is done."),
        case!("power/panic", power::panic, "A guest whose kernel panics has failed."),
        case!("power/delete", power::delete, "A deleted guest is asked by ACPI, and powers off in its grace period."),
        case!(
            "power/deaf",
            power::deaf,
            "A deleted guest that ignores ACPI is killed after its grace period, and has failed."
        ),
        case!("power/killed", power::killed, "A guest whose QEMU is killed has failed within five seconds."),
        case!(
            "refusals/unschedulable",
            refusals::unschedulable,
            "A guest that no node can take says so; deleted, it leaves nothing.",
            alone
        ),
        case!("refusals/claim", refusals::missing_claim, "A guest whose claim does not exist names it.", alone),
        case!("refusals/image", refusals::missing_image, "A guest whose image does not exist names it.", alone),
        case!(
            "refusals/hostile-disk",
            refusals::hostile_disk,
            "A qcow2 with a backing file is refused with the reason.",
            alone
        ),
        case!("refusals/machine", refusals::machine_type, "A machine type that QEMU does not know is named.", alone),
        case!("refusals/memory", refusals::memory, "A guest with more memory than any node has says so.", alone),
        case!(
            "refusals/nothing-left",
            refusals::nothing_left,
            "A guest with everything but a block device that ran and was deleted leaves nothing.",
            alone
        ),
        case!(
            "refusals/no-device-left",
            refusals::no_device_left,
            "A guest with a claim in block mode that ran and was deleted leaves nothing.",
            alone
        )
        .needing(Need::BlockClaims),
    ]
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_unique_and_make_namespaces() {
        let names: std::collections::BTreeSet<_> = super::all().into_iter().map(|case| case.name).collect();
        assert_eq!(names.len(), super::all().len());
        assert!(names.iter().all(|name| name.len() < 50 && name.matches('/').count() == 1));
    }
}
