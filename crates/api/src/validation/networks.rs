//! Networks, and the network cards that refer to them.

use super::{Cause, Reason};
use crate::kubevirt::Configuration;
use crate::vmi::{Interface, Network, VirtualMachineInstanceSpec};

const INTERFACES: &str = "spec.domain.devices.interfaces";

pub(super) fn check(spec: &VirtualMachineInstanceSpec, cluster: &Configuration, causes: &mut Vec<Cause>) {
    let interfaces = &spec.domain.devices.interfaces;
    for (index, network) in spec.networks.iter().enumerate() {
        let path = format!("spec.networks[{index}]");
        let kinds = [network.pod.is_some(), network.multus.is_some(), network.resource_claim.is_some()];
        if kinds.into_iter().filter(|set| *set).count() != 1 {
            causes.push(Cause::new(Reason::Invalid, &path, "must have exactly one of pod, multus and resourceClaim"));
        }
        if !interfaces.iter().any(|interface| interface.name == network.name) {
            let problem = format!("is '{}', but {INTERFACES} has no interface of that name", network.name);
            causes.push(Cause::new(Reason::Required, format!("{path}.name"), problem));
        }
    }
    for second in spec.networks.iter().enumerate().filter(|(_, network)| network.pod.is_some()).skip(1) {
        let field = format!("spec.networks[{}].pod", second.0);
        causes.push(Cause::new(Reason::Duplicate, field, "is the second pod network: a pod has one"));
    }
    for (index, interface) in interfaces.iter().enumerate() {
        let path = format!("{INTERFACES}[{index}]");
        let network = spec.networks.iter().find(|network| network.name == interface.name);
        if network.is_none() {
            let problem = format!("is '{}', but spec.networks has no network of that name", interface.name);
            causes.push(Cause::new(Reason::NotFound, format!("{path}.name"), problem));
        }
        binding(&path, interface, network, cluster, causes);
    }
}

fn binding(
    path: &str,
    interface: &Interface,
    network: Option<&Network>,
    cluster: &Configuration,
    causes: &mut Vec<Cause>,
) {
    let removed = [
        ("slirp", interface.slirp.is_some()),
        ("macvtap", interface.macvtap.is_some()),
        ("passt", interface.passt.is_some()),
    ];
    for (name, _) in removed.into_iter().filter(|(_, set)| *set) {
        let problem = "is not supported any more: use masquerade or bridge";
        causes.push(Cause::new(Reason::NotSupported, format!("{path}.{name}"), problem));
    }
    let bindings = [
        interface.bridge.is_some(),
        interface.masquerade.is_some(),
        interface.sriov.is_some(),
        interface.passt_binding.is_some(),
        interface.binding.is_some(),
        removed.iter().any(|(_, set)| *set),
    ];
    if bindings.into_iter().filter(|set| *set).count() != 1 {
        causes.push(Cause::new(Reason::Invalid, path, "must have exactly one binding, such as masquerade or bridge"));
    }
    let Some(network) = network else { return };
    if interface.masquerade.is_some() && network.pod.is_none() {
        let problem = format!("works on the pod network only, and '{}' is none", network.name);
        causes.push(Cause::new(Reason::Invalid, format!("{path}.masquerade"), problem));
    }
    let permitted = cluster.network.as_ref().and_then(|network| network.permit_bridge_interface_on_pod_network);
    if interface.bridge.is_some() && network.pod.is_some() && permitted == Some(false) {
        let problem = "is not allowed on the pod network of this cluster: use masquerade";
        causes.push(Cause::new(Reason::Invalid, format!("{path}.bridge"), problem));
    }
}
