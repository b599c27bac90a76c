//! Cloud-init volumes: what their seed holds and where secret parts of it are mounted.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::names::annotations;
use ferrovirt_api::vmi::{CloudInitNoCloudSource, Volume};
use ferrovirt_launcher_rpc::disks::{CloudInitLayout, CloudInitSeed, SeedText};
use ferrovirt_launcher_rpc::paths;

use crate::identity::{self, Identity};
use crate::unsupported::Unsupported;

/// A part of the data: inline, as base64, or the name of a secret.
struct Part<'a> {
    path: String,
    inline: Option<&'a str>,
    base64: Option<&'a str>,
    secret: Option<SeedText>,
}

/// The seed of a cloud-init volume; `None` for other volumes. `devices` is the JSON about tagged devices.
pub(crate) fn seed(
    vmi: &VirtualMachineInstance,
    volume: &Volume,
    devices: Option<&str>,
) -> Result<Option<CloudInitSeed>, Unsupported> {
    let (layout, field, source) = if let Some(source) = &volume.cloud_init_no_cloud {
        (CloudInitLayout::NoCloud, "cloudInitNoCloud", (**source).clone())
    } else if let Some(drive) = &volume.cloud_init_config_drive {
        // Both sources have the same fields.
        let source = CloudInitNoCloudSource {
            secret_ref: drive.secret_ref.clone(),
            user_data_base64: drive.user_data_base64.clone(),
            user_data: drive.user_data.clone(),
            network_data_secret_ref: drive.network_data_secret_ref.clone(),
            network_data_base64: drive.network_data_base64.clone(),
            network_data: drive.network_data.clone(),
        };
        (CloudInitLayout::ConfigDrive, "cloudInitConfigDrive", source)
    } else {
        return Ok(None);
    };
    let secret = |part: &str, keys: [&str; 2]| SeedText::File {
        directory: paths::cloud_init_secret(&volume.name, part),
        keys: keys.map(str::to_owned).to_vec(),
    };
    let path = |part: &str| format!("spec.volumes[{}].{field}.{part}", volume.name);
    let user = Part {
        path: path("userDataBase64"),
        inline: source.user_data.as_deref(),
        base64: source.user_data_base64.as_deref(),
        secret: source.secret_ref.as_ref().map(|_| secret("user", ["userdata", "userData"])),
    };
    let network = Part {
        path: path("networkDataBase64"),
        inline: source.network_data.as_deref(),
        base64: source.network_data_base64.as_deref(),
        secret: source.network_data_secret_ref.as_ref().map(|_| secret("network", ["networkdata", "networkData"])),
    };
    let identity = Identity::of(vmi)?;
    let config_drive = layout == CloudInitLayout::ConfigDrive;
    Ok(Some(CloudInitSeed {
        layout,
        user_data: user.text()?,
        network_data: network.text()?,
        instance_id: format!("{}.{}", identity.name, identity.namespace),
        hostname: identity::hostname(vmi),
        uuid: config_drive.then_some(identity.uuid),
        instance_type: instance_type(vmi),
        public_key_directories: key_directories(vmi, layout),
        devices: devices.filter(|_| config_drive).map(str::to_owned),
    }))
}

impl Part<'_> {
    fn text(self) -> Result<Option<SeedText>, Unsupported> {
        let present = |text: &&str| !text.is_empty();
        if let Some(text) = self.inline.filter(present) {
            return Ok(Some(SeedText::Inline(text.to_owned())));
        }
        if let Some(text) = self.base64.filter(present) {
            let refuse = |why: &str| Unsupported::new(&self.path, format!("{} characters", text.len()), why);
            let bytes = STANDARD.decode(text.trim()).map_err(|_| refuse("this is not base64"))?;
            let text = String::from_utf8(bytes).map_err(|_| refuse("data that is not text has to be in a secret"))?;
            return Ok(Some(SeedText::Inline(text)));
        }
        Ok(self.secret)
    }
}

fn instance_type(vmi: &VirtualMachineInstance) -> Option<String> {
    let annotation = |name| vmi.metadata.annotations.as_ref()?.get(name).cloned();
    annotation(annotations::INSTANCETYPE).or_else(|| annotation(annotations::CLUSTER_INSTANCETYPE))
}

/// Where the keys are that reach the guest through this layout.
fn key_directories(vmi: &VirtualMachineInstance, layout: CloudInitLayout) -> Vec<String> {
    let credentials = vmi.spec.access_credentials.iter().enumerate();
    let fitting = credentials.filter(|(_, credential)| {
        let method = credential.ssh_public_key.as_ref().map(|key| &key.propagation_method);
        method.is_some_and(|method| match layout {
            CloudInitLayout::NoCloud => method.no_cloud.is_some(),
            CloudInitLayout::ConfigDrive => method.config_drive.is_some(),
        })
    });
    fitting.map(|(index, _)| paths::access_credential(index)).collect()
}
