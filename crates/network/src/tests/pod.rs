//! A pod between a world and a guest.

use std::os::fd::AsFd;
use std::path::Path;
use std::thread::JoinHandle;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_launcher_rpc::network::{DhcpServer, GuestLink};
use rustix::thread::{Gid, LinkNameSpaceType, Uid, move_into_link_name_space, set_thread_res_gid, set_thread_res_uid};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::namespace::Namespace;
use crate::set_up::within;
use crate::{ChangeError, InterfacePlan, NetworkError, ResolvConf, State, plan};

pub(super) const POD_MAC: &str = "0a:58:0a:f4:07:02";

/// Which addresses the pod network gives.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Addresses {
    Both,
    V4,
    None,
}

pub(super) struct Pod {
    pub(super) world: Namespace,
    pub(super) pod: Namespace,
}

impl Pod {
    /// A pod as a network plugin leaves it.
    pub(super) fn new(addresses: Addresses) -> Self {
        let (world, pod) = (Namespace::new("world"), Namespace::new("pod"));
        world.run(&format!("ip link add w0 type veth peer name eth0 netns {}", pod.name));
        pod.run(&format!("ip link set eth0 mtu 1450 address {POD_MAC}"));
        for (namespace, link, number) in [(&world, "w0", 1), (&pod, "eth0", 2)] {
            if addresses != Addresses::None {
                namespace.run(&format!("ip addr add 10.244.7.{number}/24 dev {link}"));
            }
            if addresses == Addresses::Both {
                namespace.run(&format!("ip addr add fd00:244:7::{number}/64 dev {link} nodad"));
            }
            namespace.run(&format!("ip link set {link} up"));
        }
        if addresses != Addresses::None {
            pod.run("ip route add default via 10.244.7.1");
            pod.run("ip route add 10.99.0.0/16 via 10.244.7.1");
        }
        if addresses == Addresses::Both {
            pod.run("ip -6 route add default via fd00:244:7::1");
        }
        Self { world, pod }
    }

    pub(super) async fn set_up(&self, plans: &[InterfacePlan]) -> Result<State, NetworkError> {
        crate::set_up(self.pod.handle(), plans, &resolv()).await
    }

    /// Sets up with at most this many changes; tells how many there were.
    pub(super) async fn set_up_within(
        &self,
        plans: &[InterfacePlan],
        allowed: usize,
    ) -> Result<(State, usize), NetworkError> {
        let permission = move |done| if done < allowed { Ok(()) } else { Err(ChangeError::Stopped) };
        within(self.pod.handle(), plans.to_vec(), resolv(), Box::new(permission)).await
    }

    /// Plugs a guest in.
    pub(super) fn guest(&self, link: &GuestLink) -> Namespace {
        let guest = Namespace::new("guest");
        guest.run(&format!("ip link add g0 type veth peer name p0 netns {}", self.pod.name));
        guest.run(&format!("ip link set g0 address {}", link.mac));
        guest.run("busybox sysctl -qw net.ipv6.conf.g0.accept_dad=0");
        guest.run("ip link set g0 up");
        self.pod.run(&format!("ip link set p0 master {} up", link.dhcp.as_ref().unwrap().device));
        guest
    }

    /// Runs the DHCP server as the launcher does: in the pod, as a user without rights.
    pub(super) fn serve_dhcp(&self, server: DhcpServer) -> Dhcp {
        let (stop, stopped) = oneshot::channel::<()>();
        let namespace = self.pod.handle();
        let thread = std::thread::spawn(move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            let (user, group) = (Uid::from_raw(107), Gid::from_raw(107));
            set_thread_res_gid(group, group, group).unwrap();
            set_thread_res_uid(user, user, user).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::select! {
                    ended = ferrovirt_dhcp::serve(server) => panic!("{ended:?}"),
                    _ = stopped => {}
                }
            });
        });
        Dhcp { stop: Some(stop), thread: Some(thread) }
    }

    /// Everything in the pod that set_up makes, without what differs from run to run.
    pub(super) fn snapshot(&self) -> Value {
        let links: Vec<Value> = serde_json::from_str(&self.pod.run("ip -j -d addr")).unwrap();
        let links: Vec<Value> = links.iter().map(link_facts).collect();
        let rules: Value = serde_json::from_str(&self.pod.run("nft -j list ruleset")).unwrap();
        let sysctls = [
            "ipv4.ip_forward",
            "ipv4.ip_unprivileged_port_start",
            "ipv6.conf.all.forwarding",
            "ipv4.conf.all.arp_ignore",
        ];
        let sysctls = sysctls.map(|key| self.pod.run(&format!("busybox sysctl net.{key}")));
        json!({
            "links": links,
            "rules": without_handles(rules),
            "sysctls": sysctls,
            // Whether a link without a peer counts as down is decided a moment later by the kernel.
            "routes": self.pod.run("ip route").replace(" linkdown", ""),
            "taps": self.pod.run("ip tuntap list"),
        })
    }
}

fn link_facts(link: &Value) -> Value {
    let addresses = link["addr_info"].as_array().unwrap().iter();
    // The kernel adds link-local addresses when it finds the time.
    let addresses = addresses.filter(|address| address["scope"] != "link" || address["family"] == "inet");
    let addresses: Vec<Value> = addresses.map(|it| json!([it["local"], it["prefixlen"], it["scope"]])).collect();
    let made_up_by_the_kernel = link["linkinfo"]["info_kind"] == "tun";
    json!({
        "name": link["ifname"], "mac": if made_up_by_the_kernel { &Value::Null } else { &link["address"] }, "mtu": link["mtu"],
        "master": link["master"], "alias": link["ifalias"], "up": link["flags"].as_array().unwrap().contains(&json!("UP")),
        "addresses": addresses,
    })
}

fn without_handles(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            fields.retain(|key, _| key != "handle" && key != "metainfo");
            fields.values_mut().for_each(|value| *value = without_handles(value.take()));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| *value = without_handles(value.take())),
        _ => {}
    }
    value
}

/// A server that stops with the test.
pub(super) struct Dhcp {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Dhcp {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok() || std::thread::panicking(), "the DHCP server broke");
        }
    }
}

fn resolv() -> ResolvConf {
    ResolvConf::parse("nameserver 10.96.0.10\nnameserver fd00::a\nsearch shop.svc.cluster.local cluster.local\n")
}

/// The plans of a guest with one card.
pub(super) fn plans(interface: &Value) -> Vec<InterfacePlan> {
    plans_on(interface, &json!({}))
}

pub(super) fn plans_on(interface: &Value, pod_network: &Value) -> Vec<InterfacePlan> {
    let mut interface = interface.clone();
    interface["name"] = json!("default");
    let vmi: VirtualMachineInstance = serde_json::from_value(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": "web", "namespace": "shop", "uid": "c0ffee00-0000-4000-8000-000000000001"},
        "spec": {
            "domain": {"devices": {"interfaces": [interface]}},
            "networks": [{"name": "default", "pod": pod_network}]
        }
    }))
    .unwrap();
    plan(&vmi).unwrap()
}

/// Lets busybox' client get a lease and configure the guest with it; returns what the client was told.
pub(super) fn udhcpc(guest: &Namespace) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let (script, told) = (directory.path().join("script"), directory.path().join("told"));
    std::fs::write(&script, udhcpc_script(&told)).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let options = ["mtu", "search", "ntpsrv", "staticroutes", "tftp", "bootfile", "hostname", "domain"]
        .map(|it| format!("-O {it}"));
    guest.run(&format!(
        "busybox udhcpc -i g0 -f -q -n -t 20 -T 1 -x 0x39:05dc {} -s {}",
        options.join(" "),
        script.display()
    ));
    std::fs::read_to_string(told).unwrap().lines().map(str::to_owned).collect()
}

fn udhcpc_script(told: &Path) -> String {
    format!(
        "#!/bin/sh\n[ \"$1\" = bound ] || exit 0\nenv > {}\nip addr add $ip/$mask dev g0\n\
         for gateway in $router; do ip route add default via $gateway; done\n",
        told.display()
    )
}
