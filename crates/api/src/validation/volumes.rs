//! Volumes: exactly one source each, and sources that can be had.

use k8s_openapi::api::core::v1::LocalObjectReference;

use super::Guest;
use super::Reason::{Duplicate, Invalid, NotSupported, Required};
use super::table::{Findings, Path, Problem, Row, RuleInfo, if_so, names, when};
use super::text::{base64, is_clean_path, is_dns_label, is_dns_subdomain};
use crate::gates;
use crate::vmi::{HostDiskType, Volume};

type VolumeRule = Row<fn(&VolumeOf<'_>) -> Problem>;
type SeedRule = Row<fn(&Seed<'_>) -> Problem>;
type GuestRule = Row<fn(&Guest<'_>) -> Problem>;

/// Cloud-init data that is written into the object; more belongs into a secret.
const LONGEST_INLINE: usize = 2048;

struct VolumeOf<'a> {
    volume: &'a Volume,
    index: usize,
    guest: &'a Guest<'a>,
}

const VOLUME: &[VolumeRule] = &[
    ("volume-name-is-a-dns-label", "name", Invalid, |it| {
        let name = &it.volume.name;
        when(!is_dns_label(name), || {
            format!("is '{name}', which is no DNS label: use lower case letters, digits and '-'")
        })
    }),
    ("volume-names-differ", "name", Duplicate, |it| {
        let first = it.guest.spec.volumes[..it.index].iter().position(|before| before.name == it.volume.name)?;
        Some(format!("is '{}', as spec.volumes[{first}].name is: names must differ", it.volume.name))
    }),
    ("volume-has-a-source", "", Required, |it| {
        if_so(sources(it.volume).next().is_none(), "has no source: set one, such as containerDisk")
    }),
    ("volume-has-one-source", "", Invalid, |it| {
        let all: Vec<&str> = sources(it.volume).collect();
        when(all.len() > 1, || format!("has several sources ({}): keep one", all.join(", ")))
    }),
    ("volume-has-a-disk-or-filesystem", "name", Required, |it| {
        let (name, devices) = (&it.volume.name, &it.guest.spec.domain.devices);
        let used = devices.disks.iter().any(|disk| disk.name == *name)
            || devices.filesystems.iter().any(|one| one.name == *name);
        let own = it.volume.memory_dump.is_some() || it.volume.container_path.is_some();
        when(!used && !own, || format!("is '{name}', but no disk and no filesystem has that name"))
    }),
    ("claim-name-is-one", "persistentVolumeClaim.claimName", Invalid, |it| {
        object("a claim", &it.volume.persistent_volume_claim.as_ref()?.claim_name)
    }),
    ("data-volume-name-is-one", "dataVolume.name", Invalid, |it| {
        object("a data volume", &it.volume.data_volume.as_ref()?.name)
    }),
    ("ephemeral-has-a-claim", "ephemeral.persistentVolumeClaim", Required, |it| {
        if_so(
            it.volume.ephemeral.as_ref()?.persistent_volume_claim.is_none(),
            "is missing: name the claim below the layer",
        )
    }),
    ("ephemeral-claim-name-is-one", "ephemeral.persistentVolumeClaim.claimName", Invalid, |it| {
        object("a claim", &it.volume.ephemeral.as_ref()?.persistent_volume_claim.as_ref()?.claim_name)
    }),
    ("empty-disk-has-a-size", "emptyDisk.capacity", Invalid, |it| {
        let capacity = &it.volume.empty_disk.as_ref()?.capacity;
        when(capacity.value() <= 0, || format!("is {capacity}: a disk must be larger than nothing"))
    }),
    ("container-disk-has-an-image", "containerDisk.image", Required, |it| {
        if_so(it.volume.container_disk.as_ref()?.image.is_empty(), "is missing: name a container image")
    }),
    ("container-disk-path-is-absolute-and-clean", "containerDisk.path", Invalid, |it| {
        clean(it.volume.container_disk.as_ref()?.path.as_deref()?)
    }),
    ("host-disk-needs-its-gate", "hostDisk", Invalid, |it| {
        it.volume.host_disk.as_ref()?;
        if_so(
            !gates::is_on(it.guest.cluster, gates::HOST_DISK),
            "needs the feature gate HostDisk in the KubeVirt object",
        )
    }),
    ("host-disk-path-is-absolute-and-clean", "hostDisk.path", Invalid, |it| clean(&it.volume.host_disk.as_ref()?.path)),
    ("host-disk-capacity-is-for-creation", "hostDisk.capacity", Invalid, |it| {
        let disk = it.volume.host_disk.as_ref()?;
        if_so(
            disk.capacity.is_some() && disk.r#type == HostDiskType::Disk,
            "is for type DiskOrCreate: a disk that exists has its size",
        )
    }),
    ("host-disk-creation-has-a-size", "hostDisk.capacity", Invalid, |it| {
        let disk = it.volume.host_disk.as_ref()?;
        let capacity = disk.capacity.as_ref().filter(|_| disk.r#type == HostDiskType::DiskOrCreate)?;
        when(capacity.value() <= 0, || format!("is {capacity}: a disk must be larger than nothing"))
    }),
    ("config-map-is-named", "configMap.name", Required, |it| {
        let map = it.volume.config_map.as_ref()?;
        if_so(map.name.as_deref().is_none_or(str::is_empty), "is missing: name a config map")
    }),
    ("secret-is-named", "secret.secretName", Required, |it| {
        let secret = it.volume.secret.as_ref()?;
        if_so(secret.secret_name.as_deref().is_none_or(str::is_empty), "is missing: name a secret")
    }),
    ("service-account-is-named", "serviceAccount.serviceAccountName", Required, |it| {
        let account = it.volume.service_account.as_ref()?;
        if_so(account.service_account_name.as_deref().is_none_or(str::is_empty), "is missing: name a service account")
    }),
    ("sysprep-has-one-source", "sysprep", Invalid, |it| {
        let sysprep = it.volume.sysprep.as_ref()?;
        let named =
            |source: &Option<LocalObjectReference>| source.as_ref().is_some_and(|source| !source.name.is_empty());
        if_so(
            named(&sysprep.secret) == named(&sysprep.config_map),
            "must have exactly one of secret and configMap, with its name",
        )
    }),
    ("downward-api-files-are-sound", "downwardAPI.fields", Invalid, |it| {
        it.volume.downward_api.as_ref()?.fields.iter().find_map(|file| {
            let beneath = is_clean_path(&format!("/{}", file.path));
            let wrong = when(!beneath, || format!("has the path '{}': use one below the volume", file.path));
            let one = file.field_ref.is_some() != file.resource_field_ref.is_some();
            wrong.or_else(|| {
                when(!one, || format!("must have exactly one of fieldRef and resourceFieldRef for '{}'", file.path))
            })
        })
    }),
];

const GUEST: &[GuestRule] = &[
    ("one-service-account-volume", "volumes", Duplicate, |it| {
        let count = it.spec.volumes.iter().filter(|volume| volume.service_account.is_some()).count();
        when(count > 1, || format!("has {count} volumes with serviceAccount: a pod has one account"))
    }),
    ("one-downward-metrics-volume", "volumes", Duplicate, |it| {
        let count = it.spec.volumes.iter().filter(|volume| volume.downward_metrics.is_some()).count();
        when(count > 1, || format!("has {count} volumes with downwardMetrics: keep one"))
    }),
    ("one-memory-dump-volume", "volumes", Duplicate, |it| {
        let count = it.spec.volumes.iter().filter(|volume| volume.memory_dump.is_some()).count();
        when(count > 1, || format!("has {count} volumes with memoryDump: keep one"))
    }),
    ("utility-volumes-are-plugged", "utilityVolumes", NotSupported, |it| {
        if_so(!it.spec.utility_volumes.is_empty(), "cannot be there from the start: the system plugs them")
    }),
];

/// Cloud-init data of either kind.
struct Seed<'a> {
    user: Part<'a>,
    network: Part<'a>,
}

/// One half of it.
struct Part<'a> {
    inline: Option<&'a str>,
    base64: Option<&'a str>,
    secret: Option<&'a LocalObjectReference>,
}

impl Part<'_> {
    fn sources(&self) -> usize {
        let given = |text: Option<&str>| usize::from(text.is_some_and(|text| !text.is_empty()));
        given(self.inline) + given(self.base64) + given(self.secret.map(|secret| secret.name.as_str()))
    }

    /// What is wrong with the text as base64.
    fn encoding(&self) -> Problem {
        let bytes = base64(self.base64.filter(|text| !text.is_empty())?);
        let Some(bytes) = bytes else { return Some("is not base64".to_owned()) };
        if bytes.len() > LONGEST_INLINE {
            return Some(format!("stands for {} bytes: put more than {LONGEST_INLINE} into a secret", bytes.len()));
        }
        if_so(String::from_utf8(bytes).is_err(), "stands for data that is not text: put it into a secret")
    }

    fn length(&self) -> Problem {
        let length = self.inline?.len();
        when(length > LONGEST_INLINE, || format!("has {length} bytes: put more than {LONGEST_INLINE} into a secret"))
    }
}

const SEED: &[SeedRule] = &[
    ("cloud-init-has-data", "", Required, |it| {
        if_so(
            it.user.sources() + it.network.sources() == 0,
            "has no data: set userData, userDataBase64, secretRef or networkData",
        )
    }),
    ("cloud-init-has-one-user-data", "", Invalid, |it| {
        if_so(it.user.sources() > 1, "has several of userData, userDataBase64 and secretRef: keep one")
    }),
    ("cloud-init-has-one-network-data", "", Invalid, |it| {
        if_so(
            it.network.sources() > 1,
            "has several of networkData, networkDataBase64 and networkDataSecretRef: keep one",
        )
    }),
    ("cloud-init-user-data-is-base64", "userDataBase64", Invalid, |it| it.user.encoding()),
    ("cloud-init-network-data-is-base64", "networkDataBase64", Invalid, |it| it.network.encoding()),
    ("cloud-init-user-data-is-short", "userData", Invalid, |it| it.user.length()),
    ("cloud-init-network-data-is-short", "networkData", Invalid, |it| it.network.length()),
];

/// The sources that a volume has.
pub(super) fn sources(volume: &Volume) -> impl Iterator<Item = &'static str> {
    let sources = [
        ("hostDisk", volume.host_disk.is_some()),
        ("persistentVolumeClaim", volume.persistent_volume_claim.is_some()),
        ("cloudInitNoCloud", volume.cloud_init_no_cloud.is_some()),
        ("cloudInitConfigDrive", volume.cloud_init_config_drive.is_some()),
        ("sysprep", volume.sysprep.is_some()),
        ("containerDisk", volume.container_disk.is_some()),
        ("ephemeral", volume.ephemeral.is_some()),
        ("emptyDisk", volume.empty_disk.is_some()),
        ("dataVolume", volume.data_volume.is_some()),
        ("configMap", volume.config_map.is_some()),
        ("secret", volume.secret.is_some()),
        ("downwardAPI", volume.downward_api.is_some()),
        ("serviceAccount", volume.service_account.is_some()),
        ("downwardMetrics", volume.downward_metrics.is_some()),
        ("memoryDump", volume.memory_dump.is_some()),
        ("containerPath", volume.container_path.is_some()),
    ];
    sources.into_iter().filter(|(_, set)| *set).map(|(name, _)| name)
}

fn object(what: &str, name: &str) -> Problem {
    when(!is_dns_subdomain(name), || {
        format!("is '{name}', which is no name of {what}: use lower case letters, digits, '-' and '.'")
    })
}

fn clean(path: &str) -> Problem {
    when(!is_clean_path(path), || format!("is '{path}': use an absolute path without '.' and '..'"))
}

pub(super) fn check(guest: &Guest<'_>, path: &Path<'_>, findings: &mut Findings) {
    let list = path.field("volumes");
    for (index, volume) in guest.spec.volumes.iter().enumerate() {
        let path = list.index(index);
        findings.apply(VOLUME, &VolumeOf { volume, index, guest }, &path);
        if let Some(it) = &volume.cloud_init_no_cloud {
            let user = part(&it.user_data, &it.user_data_base64, &it.secret_ref);
            let network = part(&it.network_data, &it.network_data_base64, &it.network_data_secret_ref);
            findings.apply(SEED, &Seed { user, network }, &path.field("cloudInitNoCloud"));
        }
        if let Some(it) = &volume.cloud_init_config_drive {
            let user = part(&it.user_data, &it.user_data_base64, &it.secret_ref);
            let network = part(&it.network_data, &it.network_data_base64, &it.network_data_secret_ref);
            findings.apply(SEED, &Seed { user, network }, &path.field("cloudInitConfigDrive"));
        }
    }
    findings.apply(GUEST, guest, path);
}

fn part<'a>(
    inline: &'a Option<String>,
    base64: &'a Option<String>,
    secret: &'a Option<LocalObjectReference>,
) -> Part<'a> {
    Part { inline: inline.as_deref(), base64: base64.as_deref(), secret: secret.as_ref() }
}

pub(super) fn rules() -> impl Iterator<Item = RuleInfo> {
    names(VOLUME).chain(names(SEED)).chain(names(GUEST))
}
