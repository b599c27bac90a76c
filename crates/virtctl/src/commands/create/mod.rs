//! `virtctl create vm`: a manifest from flags, without a cluster.

mod cloud_init;
mod params;
mod volumes;

use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::output::{Format, print};

pub(crate) use self::cloud_init::CloudInit;
pub(crate) use self::volumes::Volumes;

const STRATEGIES: [&str; 5] = ["Always", "Manual", "Halted", "Once", "RerunOnFailure"];

/// Arguments of `create`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Clone)]
enum What {
    /// Print the manifest of a virtual machine.
    ///
    /// No cluster is asked. Unless a boot order is given, the machine boots from its first volume: container disks come first, then
    /// claims, then imported volumes.
    #[command(visible_alias = "virtualmachine", after_long_help = concat!(
        "Examples:",
        "\n  virtctl create vm --name web --memory 2Gi --volume-containerdisk src:quay.io/containerdisks/fedora:latest",
        "\n  virtctl create vm --name web --user jane --ssh-key \"$(cat ~/.ssh/id_ed25519.pub)\" --volume-pvc src:web-disk",
        "\n  virtctl create vm --name web --instancetype u1.small --preference fedora --volume-import type:ds,src:os/fedora,size:20Gi",
        "\n  virtctl create vm --name web --volume-import type:http,url:https://example.com/disk.qcow2,size:10Gi",
        "\n  virtctl create vm --name web | virtctl apply -f -",
    ))]
    Vm(Box<Vm>),
}

/// Arguments of `create vm`.
#[derive(clap::Args, Clone)]
pub(crate) struct Vm {
    /// Name of the machine. Default: a random one.
    #[arg(long)]
    name: Option<String>,
    /// When it runs: Always, Manual, Halted, Once or RerunOnFailure.
    #[arg(long, value_name = "STRATEGY", default_value = "Always")]
    run_strategy: String,
    /// Seconds that the guest has for its shutdown.
    #[arg(long, value_name = "SECONDS", default_value_t = 180)]
    termination_grace_period: i64,
    /// Memory of the guest. Default: 512Mi.
    #[arg(long, conflicts_with_all = ["instancetype", "infer_instancetype", "infer_instancetype_from"])]
    memory: Option<String>,
    /// Instancetype, as `[KIND/]NAME`.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["infer_instancetype", "infer_instancetype_from"])]
    instancetype: Option<String>,
    /// Take the instancetype that the boot volume is labelled with.
    #[arg(long, conflicts_with = "infer_instancetype_from")]
    infer_instancetype: bool,
    /// Take the instancetype that this volume is labelled with.
    #[arg(long, value_name = "VOLUME")]
    infer_instancetype_from: Option<String>,
    /// Preference, as `[KIND/]NAME`.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["infer_preference", "infer_preference_from"])]
    preference: Option<String>,
    /// Take the preference that the boot volume is labelled with.
    #[arg(long, conflicts_with = "infer_preference_from")]
    infer_preference: bool,
    /// Take the preference that this volume is labelled with.
    #[arg(long, value_name = "VOLUME")]
    infer_preference_from: Option<String>,
    #[command(flatten)]
    volumes: Volumes,
    #[command(flatten)]
    cloud_init: CloudInit,
    /// Format of the manifest.
    #[arg(short, long, value_name = "FORMAT", default_value = "yaml")]
    output: Format,
}

/// `virtctl create`
pub(crate) fn run(cluster: &Cluster, args: &Args) -> anyhow::Result<()> {
    let What::Vm(args) = &args.what;
    let name = args.name.clone().unwrap_or_else(|| format!("vm-{}", params::suffix()));
    let vm = args.manifest(&name, cluster.given_namespace())?;
    print(&args.output.text(&vm)?)
}

impl Vm {
    fn manifest(&self, name: &str, namespace: Option<&str>) -> anyhow::Result<Value> {
        let known = STRATEGIES.iter().find(|known| known.eq_ignore_ascii_case(&self.run_strategy));
        let strategy = known.with_context(|| {
            let known = STRATEGIES.join(", ");
            params::wrong(
                "run-strategy",
                &format!("invalid run strategy \"{}\", supported values are: {known}", self.run_strategy),
            )
        })?;
        let mut vm = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name},
            "spec": {
                "runStrategy": strategy,
                "template": {"metadata": {}, "spec": {
                    // With a bridge, the default of clusters, the guest could not move.
                    "domain": {
                        "devices": {"interfaces": [{"name": "default", "masquerade": {}}]},
                        "memory": {"guest": self.memory()?},
                    },
                    "networks": [{"name": "default", "pod": {}}],
                    "terminationGracePeriodSeconds": self.termination_grace_period,
                }},
            },
        });
        if let Some(namespace) = namespace {
            vm["metadata"]["namespace"] = json!(namespace);
        }
        let boots = self.volumes.add(&mut vm, name)?;
        self.cloud_init.add(&mut vm)?;
        self.instancetype(&mut vm, boots.as_deref())?;
        self.preference(&mut vm, boots.as_deref())?;
        Ok(vm)
    }

    fn memory(&self) -> anyhow::Result<String> {
        let memory = self.memory.as_deref().unwrap_or("512Mi");
        let quantity: Result<ferrovirt_api::values::Quantity, _> = serde_json::from_value(json!(memory));
        quantity.map_err(|error| anyhow::anyhow!(params::wrong("memory", &error.to_string())))?;
        Ok(memory.to_owned())
    }

    /// Nothing is inferred that nobody asked for: clusters without instancetypes take the manifest too.
    fn instancetype(&self, vm: &mut Value, boots: Option<&str>) -> anyhow::Result<()> {
        vm["spec"]["instancetype"] = if let Some(given) = &self.instancetype {
            matcher("instancetype", given, ["virtualmachineinstancetype", "virtualmachineclusterinstancetype"])?
        } else if self.infer_instancetype || self.infer_instancetype_from.is_some() {
            inferred(vm, self.infer_instancetype_from.as_deref().or(boots))?
        } else {
            return Ok(());
        };
        // The instancetype says how much memory there is.
        if let Some(domain) = vm.pointer_mut("/spec/template/spec/domain").and_then(Value::as_object_mut) {
            domain.remove("memory");
        }
        Ok(())
    }

    fn preference(&self, vm: &mut Value, boots: Option<&str>) -> anyhow::Result<()> {
        if let Some(given) = &self.preference {
            let kinds = ["virtualmachinepreference", "virtualmachineclusterpreference"];
            vm["spec"]["preference"] = matcher("preference", given, kinds)?;
        } else if self.infer_preference || self.infer_preference_from.is_some() {
            vm["spec"]["preference"] = inferred(vm, self.infer_preference_from.as_deref().or(boots))?;
        }
        Ok(())
    }
}

/// `[KIND/]NAME` of an instancetype or preference.
fn matcher(flag: &str, given: &str, kinds: [&str; 2]) -> anyhow::Result<Value> {
    match given.split('/').collect::<Vec<_>>()[..] {
        [name] if !name.is_empty() => Ok(json!({"name": name})),
        [kind, name] if !name.is_empty() && kinds.contains(&kind.to_lowercase().as_str()) => {
            Ok(json!({"name": name, "kind": kind.to_lowercase()}))
        }
        [kind, _] => bail!(params::wrong(
            flag,
            &format!("invalid {flag} kind \"{kind}\", supported values are: {}", kinds.join(", "))
        )),
        _ => bail!(params::wrong(flag, "use [KIND/]NAME")),
    }
}

/// From which volume something is inferred.
fn inferred(vm: &Value, from: Option<&str>) -> anyhow::Result<Value> {
    let volume = from.context("at least one volume is needed to infer an instance type or preference")?;
    volumes::can_tell(vm, volume).map_err(anyhow::Error::msg)?;
    Ok(json!({"inferFromVolume": volume}))
}

#[cfg(test)]
impl Args {
    /// The arguments of `create vm`.
    pub(crate) fn into_vm(self) -> Vm {
        let What::Vm(vm) = self.what;
        *vm
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests_support::create_vm;
    use std::fmt::Write;

    #[test]
    fn flags_become_manifests() {
        let mut golden = String::new();
        for flags in [
            "--name web",
            "--name web -n shop --run-strategy halted --memory 2Gi --termination-grace-period 5",
            "--name web --instancetype u1.small --preference virtualmachinepreference/fedora",
            "--name web --volume-containerdisk src:quay.io/os:1 --volume-pvc src:data,name:disk,bootorder:1",
            "--name web --volume-import type:ds,src:os/fedora,name:root,size:20Gi --infer-instancetype --infer-preference",
            "--name web --volume-pvc src:data",
            "--name web --volume-import type:http,url:https://example.com/a.qcow2,name:root,size:10Gi,secretref:s",
            "--name web --volume-import type:registry,url:docker://quay.io/os:1,name:root,size:10Gi --volume-blank name:more,size:1Gi",
            "--name web --volume-sysprep src:answers,type:secret",
            "--name web --user jane --ssh-key key1,key2 --ga-manage-ssh",
            "--name web --cloud-init configdrive --cloud-init-user-data YQ== --cloud-init-network-data Yg==",
            "--name web --user jane --access-cred type:ssh,src:keys --access-cred type:password,src:words",
            "--name web --cloud-init none --user jane",
        ] {
            let (vm, namespace) = create_vm(flags);
            let made = vm.manifest("web", namespace.as_deref()).unwrap();
            // Whatever is printed, a server can read.
            ferrovirt_api::decode::<ferrovirt_api::VirtualMachine>(&made).unwrap();
            write!(golden, "# virtctl create vm {flags}\n{}\n", Format::Yaml.text(&made).unwrap()).unwrap();
        }
        insta::assert_snapshot!("manifests", golden);
    }

    #[test]
    fn wrong_flags_are_named() {
        let mut golden = String::new();
        for flags in [
            "--run-strategy often",
            "--memory much",
            "--instancetype vm/small",
            "--volume-containerdisk name:a",
            "--volume-containerdisk quay.io",
            "--volume-containerdisk src:a,size:1",
            "--volume-pvc src:ns/a",
            "--volume-pvc src:a,bootorder:0",
            "--volume-pvc src:a,bootorder:1 --volume-pvc src:b,bootorder:1",
            "--volume-pvc src:a --volume-pvc src:a",
            "--volume-import src:a",
            "--volume-import type:tape",
            "--volume-import type:http,size:1Gi",
            "--volume-import type:http,url:u",
            "--volume-import type:pvc,src:a",
            "--infer-instancetype",
            "--infer-instancetype-from x",
            "--volume-containerdisk src:a --infer-preference",
            "--cloud-init floppy --user a",
            "--access-cred type:ssh,src:a",
            "--access-cred type:retina,src:a",
        ] {
            let error = create_vm(flags).0.manifest("web", None).unwrap_err();
            writeln!(golden, "{flags}\n    {}", crate::render(&error)).unwrap();
        }
        insta::assert_snapshot!("mistakes", golden);
    }
}
