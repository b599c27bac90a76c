//! Identity, life and name resolution of a guest: everything outside of its virtual hardware but storage and networks.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::PodDNSConfig;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::Guest;
use super::Reason::{Invalid, Required};
use super::table::{Findings, Path, Problem, Row, RuleInfo, if_so, names, when};
use super::text::{is_dns_label, is_dns_subdomain};
use crate::meta::DnsPolicy;
use crate::vmi::{AccessCredential, Probe};

type GuestRule = Row<fn(&Guest<'_>) -> Problem>;
type ProbeRule = Row<fn(&ProbeOf<'_>) -> Problem>;
type CredentialRule = Row<fn(&CredentialOf<'_>) -> Problem>;

/// Kubernetes' limits for `resolv.conf`.
const MOST_NAMESERVERS: usize = 3;
const MOST_SEARCHES: usize = 6;
const LONGEST_SEARCHES: usize = 256;

const GUEST: &[GuestRule] = &[
    ("hostname-is-a-dns-label", "hostname", Invalid, |it| {
        let name = it.spec.hostname.as_deref()?;
        when(!is_dns_label(name), || {
            format!("is '{name}', which is no DNS label: use lower case letters, digits and '-'")
        })
    }),
    ("subdomain-is-a-dns-subdomain", "subdomain", Invalid, |it| {
        let name = it.spec.subdomain.as_deref()?;
        when(!is_dns_subdomain(name), || format!("is '{name}', which is no DNS name: use labels separated by '.'"))
    }),
    ("service-account-name-is-a-dns-subdomain", "serviceAccountName", Invalid, |it| {
        let name = it.spec.service_account_name.as_deref().filter(|name| !name.is_empty())?;
        when(!is_dns_subdomain(name), || {
            format!("is '{name}', which is no name of an account: use lower case letters, digits, '-' and '.'")
        })
    }),
    ("service-account-name-fits-its-volume", "serviceAccountName", Invalid, |it| {
        let name = it.spec.service_account_name.as_deref().filter(|name| !name.is_empty())?;
        let accounts = it
            .spec
            .volumes
            .iter()
            .filter_map(|volume| volume.service_account.as_ref()?.service_account_name.as_deref());
        let other = accounts.into_iter().find(|account| *account != name)?;
        Some(format!("is '{name}', but a volume shows the account '{other}': a pod has one account"))
    }),
    ("grace-period-is-not-negative", "terminationGracePeriodSeconds", Invalid, |it| {
        let seconds = it.spec.termination_grace_period_seconds?;
        when(seconds < 0, || format!("is {seconds}: it cannot be negative"))
    }),
    ("grace-period-can-be-counted", "terminationGracePeriodSeconds", Invalid, |it| {
        let seconds = it.spec.termination_grace_period_seconds?;
        when(seconds > i64::from(i32::MAX), || format!("is {seconds}: use at most {}", i32::MAX))
    }),
    ("paused-start-has-no-liveness-probe", "livenessProbe", Invalid, |it| {
        let paused = it.spec.start_strategy.is_some() && it.spec.liveness_probe.is_some();
        if_so(paused, "would end a guest that waits to be unpaused: remove it, or startStrategy")
    }),
    ("dns-policy-none-needs-nameservers", "dnsConfig.nameservers", Required, |it| {
        let none = it.spec.dns_policy == Some(DnsPolicy::None);
        let some = it.dns().is_some_and(|dns| dns.nameservers.as_ref().is_some_and(|servers| !servers.is_empty()));
        if_so(none && !some, "is empty: dnsPolicy None needs at least one name server")
    }),
    ("at-most-three-nameservers", "dnsConfig.nameservers", Invalid, |it| {
        let count = it.dns()?.nameservers.as_ref()?.len();
        when(count > MOST_NAMESERVERS, || format!("has {count} entries: at most {MOST_NAMESERVERS} are used"))
    }),
    ("nameservers-are-addresses", "dnsConfig.nameservers", Invalid, |it| {
        let wrong = it.dns()?.nameservers.as_ref()?.iter().find(|server| server.parse::<IpAddr>().is_err())?;
        Some(format!("has '{wrong}', which is no IP address"))
    }),
    ("at-most-six-search-domains", "dnsConfig.searches", Invalid, |it| {
        let count = it.dns()?.searches.as_ref()?.len();
        when(count > MOST_SEARCHES, || format!("has {count} entries: at most {MOST_SEARCHES} are used"))
    }),
    ("search-domains-are-short", "dnsConfig.searches", Invalid, |it| {
        let searches = it.dns()?.searches.as_ref()?;
        let length = searches.iter().map(|search| search.len() + 1).sum::<usize>().saturating_sub(1);
        when(length > LONGEST_SEARCHES, || {
            format!("has {length} characters in all: at most {LONGEST_SEARCHES} are used")
        })
    }),
    ("search-domains-are-dns-names", "dnsConfig.searches", Invalid, |it| {
        let searches = it.dns()?.searches.as_ref()?;
        let wrong = searches.iter().find(|search| !is_dns_subdomain(search.strip_suffix('.').unwrap_or(search)))?;
        Some(format!("has '{wrong}', which is no DNS name"))
    }),
    ("dns-options-have-names", "dnsConfig.options", Required, |it| {
        let options = it.dns()?.options.as_ref()?;
        if_so(
            options.iter().any(|option| option.name.as_deref().is_none_or(str::is_empty)),
            "has an option without a name",
        )
    }),
];

impl Guest<'_> {
    fn dns(&self) -> Option<&PodDNSConfig> {
        self.spec.dns_config.as_ref()
    }
}

struct ProbeOf<'a> {
    probe: &'a Probe,
    guest: &'a Guest<'a>,
    liveness: bool,
}

impl ProbeOf<'_> {
    fn port(&self) -> Option<&IntOrString> {
        let http = self.probe.http_get.as_ref().map(|get| &get.port);
        http.or_else(|| self.probe.tcp_socket.as_ref().map(|socket| &socket.port))
    }
}

const PROBE: &[ProbeRule] = &[
    ("probe-has-one-handler", "", Invalid, |it| {
        let probe = it.probe;
        let handlers = [
            probe.exec.is_some(),
            probe.guest_agent_ping.is_some(),
            probe.http_get.is_some(),
            probe.tcp_socket.is_some(),
        ];
        let count = handlers.into_iter().filter(|set| *set).count();
        if_so(count != 1, "must have exactly one of exec, guestAgentPing, httpGet and tcpSocket")
    }),
    ("network-probe-needs-the-pod-network", "", Invalid, |it| {
        let asks = it.probe.http_get.is_some() || it.probe.tcp_socket.is_some();
        let reached = it.guest.spec.networks.iter().any(|network| network.pod.is_some());
        if_so(
            asks && !reached,
            "reaches the guest over the pod network, and the guest has none: use guestAgentPing, or add one",
        )
    }),
    ("probe-port-is-a-port", "", Invalid, |it| match it.port()? {
        IntOrString::Int(port) => when(!(1..=65535).contains(port), || format!("asks port {port}: use 1 to 65535")),
        IntOrString::String(name) => {
            when(!super::text::is_port_name(name), || format!("asks port '{name}', which is no name of a port"))
        }
    }),
    ("probe-numbers-are-not-negative", "", Invalid, |it| {
        let probe = it.probe;
        let numbers = [
            ("initialDelaySeconds", probe.initial_delay_seconds),
            ("timeoutSeconds", probe.timeout_seconds),
            ("periodSeconds", probe.period_seconds),
            ("successThreshold", probe.success_threshold),
            ("failureThreshold", probe.failure_threshold),
        ];
        let (name, number) = numbers.into_iter().find(|(_, number)| number.is_some_and(|number| number < 0))?;
        Some(format!("has {name} {}: it cannot be negative", number.unwrap_or_default()))
    }),
    ("liveness-counts-one-success", "successThreshold", Invalid, |it| {
        let threshold = it.probe.success_threshold.filter(|threshold| it.liveness && *threshold > 1)?;
        Some(format!("is {threshold}: a liveness probe passes with its first success, so it must be 1"))
    }),
];

struct CredentialOf<'a> {
    credential: &'a AccessCredential,
    guest: &'a Guest<'a>,
}

const CREDENTIAL: &[CredentialRule] = &[
    ("credential-has-one-type", "", Invalid, |it| {
        let count =
            usize::from(it.credential.ssh_public_key.is_some()) + usize::from(it.credential.user_password.is_some());
        if_so(count != 1, "must have exactly one of sshPublicKey and userPassword")
    }),
    ("ssh-key-has-a-source", "sshPublicKey.source", Required, |it| {
        let key = it.credential.ssh_public_key.as_ref()?;
        let named = key.source.secret.as_ref().is_some_and(|secret| !secret.secret_name.is_empty());
        if_so(!named, "is empty: set secret.secretName")
    }),
    ("ssh-key-has-one-way-into-the-guest", "sshPublicKey.propagationMethod", Invalid, |it| {
        let method = &it.credential.ssh_public_key.as_ref()?.propagation_method;
        let ways = [method.config_drive.is_some(), method.no_cloud.is_some(), method.qemu_guest_agent.is_some()];
        if_so(
            ways.into_iter().filter(|set| *set).count() != 1,
            "must have exactly one of configDrive, noCloud and qemuGuestAgent",
        )
    }),
    ("ssh-key-config-drive-needs-the-volume", "sshPublicKey.propagationMethod.configDrive", Invalid, |it| {
        it.credential.ssh_public_key.as_ref()?.propagation_method.config_drive?;
        let has = it.guest.spec.volumes.iter().any(|volume| volume.cloud_init_config_drive.is_some());
        if_so(!has, "needs a volume with cloudInitConfigDrive")
    }),
    ("ssh-key-no-cloud-needs-the-volume", "sshPublicKey.propagationMethod.noCloud", Invalid, |it| {
        it.credential.ssh_public_key.as_ref()?.propagation_method.no_cloud?;
        let has = it.guest.spec.volumes.iter().any(|volume| volume.cloud_init_no_cloud.is_some());
        if_so(!has, "needs a volume with cloudInitNoCloud")
    }),
    ("ssh-key-by-agent-needs-users", "sshPublicKey.propagationMethod.qemuGuestAgent.users", Required, |it| {
        let agent = it.credential.ssh_public_key.as_ref()?.propagation_method.qemu_guest_agent.as_ref()?;
        if_so(agent.users.is_empty(), "is empty: name the users who get the keys")
    }),
    ("password-has-a-source", "userPassword.source", Required, |it| {
        let password = it.credential.user_password.as_ref()?;
        let named = password.source.secret.as_ref().is_some_and(|secret| !secret.secret_name.is_empty());
        if_so(!named, "is empty: set secret.secretName")
    }),
    ("password-has-a-way-into-the-guest", "userPassword.propagationMethod", Required, |it| {
        let method = &it.credential.user_password.as_ref()?.propagation_method;
        if_so(method.qemu_guest_agent.is_none(), "is empty: set qemuGuestAgent")
    }),
];

pub(super) fn check(guest: &Guest<'_>, path: &Path<'_>, findings: &mut Findings) {
    findings.apply(GUEST, guest, path);
    for (field, probe) in
        [("livenessProbe", &guest.spec.liveness_probe), ("readinessProbe", &guest.spec.readiness_probe)]
    {
        if let Some(probe) = probe {
            let subject = ProbeOf { probe, guest, liveness: field == "livenessProbe" };
            findings.apply(PROBE, &subject, &path.field(field));
        }
    }
    for (index, credential) in guest.spec.access_credentials.iter().enumerate() {
        let list = path.field("accessCredentials");
        findings.apply(CREDENTIAL, &CredentialOf { credential, guest }, &list.index(index));
    }
}

pub(super) fn rules() -> impl Iterator<Item = RuleInfo> {
    names(GUEST).chain(names(PROBE)).chain(names(CREDENTIAL))
}
