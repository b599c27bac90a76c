//! The installation: one of it, with settings that can work.

use super::Cause;
use super::Reason::{Duplicate, Invalid, NotSupported};
use super::configuration;
use super::placement;
use super::table::{Findings, Path, Problem, Row, RuleInfo, if_so, names, when};
use crate::KubeVirt;
use crate::gates;
use crate::kubevirt::{
    CertConfig, ComponentPatch, Configuration, PatchType, SelfSignConfiguration, TlsProtocolVersion, UninstallStrategy,
};

type InstallationRule = Row<fn(&Of<'_>) -> Problem>;
type PatchRule = Row<fn(&&ComponentPatch) -> Problem>;

/// Ciphers of TLS up to 1.2 that can be chosen; those of 1.3 cannot be.
const CIPHERS: [&str; 6] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];

struct Of<'a> {
    object: &'a KubeVirt,
}

impl<'a> Of<'a> {
    fn configuration(&self) -> Option<&'a Configuration> {
        self.object.spec.configuration.as_ref()
    }

    fn self_signed(&self) -> Option<&'a SelfSignConfiguration> {
        self.object.spec.certificate_rotate_strategy.as_ref()?.self_signed.as_ref()
    }

    fn certificates(&self) -> impl Iterator<Item = (&'static str, &'a CertConfig)> {
        let self_signed = self.self_signed();
        let both = [
            ("ca", self_signed.and_then(|it| it.ca.as_ref())),
            ("server", self_signed.and_then(|it| it.server.as_ref())),
        ];
        both.into_iter().filter_map(|(name, config)| Some((name, config?)))
    }
}

/// The parts of a certificate's life in nanoseconds, with KubeVirt's defaults.
fn life(name: &str, config: &CertConfig) -> (i64, i64) {
    const HOUR: i64 = 3_600_000_000_000;
    let default = if name == "ca" { 168 * HOUR } else { 24 * HOUR };
    let duration = config.duration.as_ref().map_or(default, crate::values::Duration::nanos);
    let renew = config.renew_before.as_ref().map_or(duration / 5, crate::values::Duration::nanos);
    (duration, renew)
}

const INSTALLATION: &[InstallationRule] = &[
    ("certificates-outlive-their-renewal", "certificateRotateStrategy.selfSigned", Invalid, |it| {
        it.certificates().find_map(|(name, config)| {
            let (duration, renew) = life(name, config);
            when(renew >= duration || renew < 0, || {
                format!("has {name}.renewBefore that is not shorter than {name}.duration")
            })
        })
    }),
    ("server-certificates-end-before-the-ca", "certificateRotateStrategy.selfSigned", Invalid, |it| {
        let self_signed = it.self_signed()?;
        let unset = CertConfig::default();
        let (ca, _) = life("ca", self_signed.ca.as_ref().unwrap_or(&unset));
        let (server, _) = life("server", self_signed.server.as_ref().unwrap_or(&unset));
        if_so(server > ca, "has server.duration that is longer than ca.duration")
    }),
    ("old-certificate-settings-are-not-mixed", "certificateRotateStrategy.selfSigned", Invalid, |it| {
        let old = it.self_signed()?;
        let deprecated =
            old.ca_rotate_interval.is_some() || old.cert_rotate_interval.is_some() || old.ca_overlap_interval.is_some();
        if_so(
            deprecated && it.certificates().next().is_some(),
            "has deprecated intervals together with ca or server: keep ca and server",
        )
    }),
    ("tls-ciphers-are-known", "configuration.tlsConfiguration.ciphers", NotSupported, |it| {
        let ciphers = &it.configuration()?.tls_configuration.as_ref()?.ciphers;
        let wrong = ciphers.iter().find(|cipher| !CIPHERS.contains(&cipher.as_str()))?;
        Some(format!("has '{wrong}': use some of {}", CIPHERS.join(", ")))
    }),
    ("tls-1-3-has-no-choice-of-ciphers", "configuration.tlsConfiguration.ciphers", Invalid, |it| {
        let tls = it.configuration()?.tls_configuration.as_ref()?;
        let newest = tls.min_tls_version == Some(TlsProtocolVersion::Tls13);
        if_so(newest && !tls.ciphers.is_empty(), "cannot be chosen when minTLSVersion is VersionTLS13: remove them")
    }),
    (
        "seccomp-profile-is-one",
        "configuration.seccompConfiguration.virtualMachineInstanceProfile.customProfile",
        Invalid,
        |it| {
            let profile =
                it.configuration()?.seccomp_configuration.as_ref()?.virtual_machine_instance_profile.as_ref()?;
            let custom = profile.custom_profile.as_ref()?;
            if_so(
                custom.localhost_profile.is_some() && custom.runtime_default_profile,
                "has both localhostProfile and runtimeDefaultProfile: keep one",
            )
        },
    ),
    ("infra-has-replicas", "infra.replicas", Invalid, |it| {
        let replicas = it.object.spec.infra.as_ref()?.replicas?;
        if_so(replicas == 0, "is 0: without a control plane nothing would bring it back")
    }),
    ("workloads-have-no-replicas", "workloads.replicas", Invalid, |it| {
        it.object.spec.workloads.as_ref()?.replicas?;
        Some("cannot be chosen: there is one agent on each node".to_owned())
    }),
    ("overhead-ratio-is-at-least-1", "configuration.additionalGuestMemoryOverheadRatio", Invalid, |it| {
        let ratio = it.configuration()?.additional_guest_memory_overhead_ratio.as_deref()?;
        let sound = ratio.parse::<f64>().is_ok_and(|ratio| ratio.is_finite() && ratio >= 1.0);
        when(!sound, || format!("is '{ratio}': use a number of at least 1.0"))
    }),
    ("gates-are-on-or-off", "configuration.developerConfiguration.disabledFeatureGates", Invalid, |it| {
        let developer = it.configuration()?.developer_configuration.as_ref()?;
        let both = developer.disabled_feature_gates.iter().find(|gate| developer.feature_gates.contains(gate))?;
        Some(format!("has '{both}', which featureGates has too: keep one"))
    }),
    ("infra-placement-is-sound", "infra.nodePlacement.affinity", Invalid, |it| {
        placement::affinity_problem(it.object.spec.infra.as_ref()?.node_placement.as_ref()?.affinity.as_ref()?)
    }),
    ("workload-placement-is-sound", "workloads.nodePlacement.affinity", Invalid, |it| {
        placement::affinity_problem(it.object.spec.workloads.as_ref()?.node_placement.as_ref()?.affinity.as_ref()?)
    }),
    ("default-interface-is-a-binding", "configuration.network.defaultNetworkInterface", NotSupported, |it| {
        let binding = it.configuration()?.network.as_ref()?.default_network_interface.as_deref()?;
        when(!["bridge", "masquerade"].contains(&binding), || format!("is '{binding}': use bridge or masquerade"))
    }),
];

const PATCH: &[PatchRule] = &[("component-patch-is-json", "patch", Invalid, |it| {
    let value: serde_json::Value = match serde_json::from_str(&it.patch) {
        Ok(value) => value,
        Err(error) => return Some(format!("is not JSON: {error}")),
    };
    let fits = if it.r#type == PatchType::Json { value.is_array() } else { value.is_object() };
    if_so(!fits, "does not fit its type: a json patch is a list, the others are objects")
})];

/// Everything that is wrong with an installation.
#[must_use]
pub fn check_kubevirt(object: &KubeVirt) -> Vec<Cause> {
    let mut findings = Findings::default();
    let path = Path::root("spec");
    findings.apply(INSTALLATION, &Of { object }, &path);
    let list = path.field("customizeComponents.patches");
    let patches = object.spec.customize_components.as_ref().map_or(&[][..], |customize| &customize.patches);
    for (index, patch) in patches.iter().enumerate() {
        findings.apply(PATCH, &patch, &list.index(index));
    }
    findings.causes
}

const ONLY_ONE: &str = "there-is-one-installation";
const IN_USE: &str = "installation-with-workloads-stays";

/// Everything that is wrong with a new installation; `existing` are the names of those that are there.
#[must_use]
pub fn check_new_kubevirt(object: &KubeVirt, existing: &[String]) -> Vec<Cause> {
    let mut findings = Findings::default();
    if let Some(other) = existing.first() {
        let problem = format!("would be the second KubeVirt object, and {other} is there already: change that one");
        findings.add(ONLY_ONE, Duplicate, &Path::root("metadata.name"), &problem);
    }
    findings.causes.extend(check_kubevirt(object));
    findings.causes
}

/// Why an installation cannot be deleted while there are so many machines, guests and replica sets.
#[must_use]
pub fn check_kubevirt_delete(object: &KubeVirt, workloads: usize) -> Vec<Cause> {
    let mut findings = Findings::default();
    let blocks = object.spec.uninstall_strategy == Some(UninstallStrategy::BlockUninstallIfWorkloadsExist);
    if blocks && workloads > 0 {
        let problem = format!(
            "is BlockUninstallIfWorkloadsExist, and {workloads} machines, guests or replica sets exist: delete them first"
        );
        findings.add(IN_USE, Invalid, &Path::root("spec.uninstallStrategy"), &problem);
    }
    findings.causes
}

/// Advice for whoever configures the cluster.
#[must_use]
pub fn kubevirt_warnings(object: &KubeVirt) -> Vec<String> {
    let of = Of { object };
    let developer = of.configuration().and_then(|configuration| configuration.developer_configuration.as_ref());
    let listed = developer.into_iter().flat_map(|developer| &developer.feature_gates);
    let gates = listed.filter_map(|gate| {
        let deprecated = gates::DEPRECATED.contains(&gate.as_str());
        let gone = gates::DISCONTINUED.contains(&gate.as_str());
        match (deprecated, gone) {
            (true, _) => Some(format!("feature gate {gate} is deprecated and will be removed")),
            (_, true) => Some(format!("feature gate {gate} is discontinued and has no effect")),
            _ => None,
        }
    });
    let old = of.self_signed().filter(|old| {
        old.ca_rotate_interval.is_some() || old.cert_rotate_interval.is_some() || old.ca_overlap_interval.is_some()
    });
    let intervals = "spec.certificateRotateStrategy.selfSigned: caRotateInterval, certRotateInterval and caOverlapInterval are deprecated; use ca and server";
    let idle = configuration::warnings(&object.spec);
    gates.chain(old.map(|_| intervals.to_owned())).chain(idle).collect()
}

pub(super) fn rules() -> impl Iterator<Item = RuleInfo> {
    let whole = [
        RuleInfo { name: ONLY_ONE, field: "metadata.name", reason: Duplicate },
        RuleInfo { name: IN_USE, field: "spec.uninstallStrategy", reason: Invalid },
    ];
    names(INSTALLATION).chain(names(PATCH)).chain(whole)
}
