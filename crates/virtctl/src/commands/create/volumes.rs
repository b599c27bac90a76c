//! Volumes of a new machine.

use std::collections::BTreeMap;

use anyhow::bail;
use serde_json::{Value, json};

use super::params::{Params, suffix, wrong};

/// Flags for volumes.
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "Volumes")]
pub(crate) struct Volumes {
    /// Container disk: `src:IMAGE[,name:NAME][,bootorder:N]`; may be given several times.
    #[arg(long, value_name = "PARAMS")]
    volume_containerdisk: Vec<String>,
    /// Existing claim: `src:CLAIM[,name:NAME][,bootorder:N]`; may be given several times.
    #[arg(long, value_name = "PARAMS")]
    volume_pvc: Vec<String>,
    /// Imported volume: `type:TYPE,size:SIZE[,name:NAME][,bootorder:N]` and what the type needs; may be given several times.
    ///
    /// Types: blank; http, s3 and gcs (url, secretref, certconfigmap); registry (url or imagestream, pullmethod); imageio (url,
    /// diskid); vddk (url, uuid, thumbprint, secretref, backingfile); pvc, snapshot and ds (src:NAMESPACE/NAME).
    #[arg(long, value_name = "PARAMS")]
    volume_import: Vec<String>,
    /// Answers for Windows' setup: `src:NAME[,type:configmap|secret]`.
    #[arg(long, value_name = "PARAMS")]
    volume_sysprep: Option<String>,
    /// Deprecated: --volume-import type:ds.
    #[arg(long, value_name = "PARAMS", hide_short_help = true)]
    volume_datasource: Vec<String>,
    /// Deprecated: --volume-import type:pvc.
    #[arg(long, value_name = "PARAMS", hide_short_help = true)]
    volume_clone_pvc: Vec<String>,
    /// Deprecated: --volume-import type:blank.
    #[arg(long, value_name = "PARAMS", hide_short_help = true)]
    volume_blank: Vec<String>,
}

/// What may be said about an imported volume: of every type, and of each.
const COMMON: [&str; 4] = ["type", "size", "name", "bootorder"];
const TYPES: [(&str, &[&str], &[&str]); 10] = [
    ("blank", &[], &[]),
    ("gcs", &["url"], &["secretref"]),
    ("http", &["url"], &["secretref", "certconfigmap", "extraheaders", "secretextraheaders"]),
    ("imageio", &["url", "diskid"], &["secretref", "certconfigmap"]),
    ("pvc", &["src"], &[]),
    ("registry", &[], &["url", "imagestream", "pullmethod", "secretref", "certconfigmap"]),
    ("s3", &["url"], &["secretref", "certconfigmap"]),
    ("vddk", &["url", "uuid", "thumbprint", "secretref", "backingfile"], &["initimageurl"]),
    ("snapshot", &["src"], &[]),
    ("ds", &["src"], &[]),
];

/// The field of a data volume's source for a parameter.
fn field(param: &str) -> &str {
    match param {
        "secretref" => "secretRef",
        "certconfigmap" => "certConfigMap",
        "diskid" => "diskId",
        "imagestream" => "imageStream",
        "pullmethod" => "pullMethod",
        "backingfile" => "backingFile",
        "initimageurl" => "initImageURL",
        "extraheaders" => "extraHeaders",
        "secretextraheaders" => "secretExtraHeaders",
        same => same,
    }
}

/// Whether an instancetype or preference can be inferred from a volume.
pub(super) fn can_tell(vm: &Value, volume: &str) -> Result<(), String> {
    let volumes = vm.pointer("/spec/template/spec/volumes").and_then(Value::as_array);
    let Some(found) = volumes.into_iter().flatten().find(|found| found["name"] == volume) else {
        return Err(format!("there is no volume with name \"{volume}\""));
    };
    if found["persistentVolumeClaim"].is_object() {
        return Ok(());
    }
    let Some(name) = found["dataVolume"]["name"].as_str() else {
        return Err(
            "inference of instancetype or preference works only with datasources, datavolumes or pvcs".to_owned()
        );
    };
    let templates = vm.pointer("/spec/dataVolumeTemplates").and_then(Value::as_array);
    let Some(template) = templates.into_iter().flatten().find(|template| template["metadata"]["name"] == name) else {
        return Ok(());
    };
    let source = &template["spec"]["source"];
    let known = ["pvc", "registry", "snapshot"].iter().any(|kind| source[*kind].is_object());
    if known || template["spec"]["sourceRef"]["kind"] == "DataSource" {
        return Ok(());
    }
    Err(format!(
        "volume \"{volume}\" carries no labels to infer from: its source must be a pvc, registry, snapshot or ds"
    ))
}

/// The machine while its volumes are added.
struct Builder<'a> {
    vm: &'a mut Value,
    boots: BTreeMap<u32, String>,
}

impl Builder<'_> {
    fn add(&mut self, params: &Params, name: &str, kind: &str, source: &Value) -> anyhow::Result<()> {
        let spec = &mut self.vm["spec"]["template"]["spec"];
        if spec["volumes"].as_array().into_iter().flatten().any(|volume| volume["name"] == name) {
            bail!(params.wrong(&format!("there is already a volume with name \"{name}\"")));
        }
        push(&mut spec["volumes"], json!({"name": name, kind: source}));
        let Some(order) = params.boot_order()? else { return Ok(()) };
        if self.boots.insert(order, name.to_owned()).is_some() {
            bail!(params.wrong(&format!("bootorder {order} was specified multiple times")));
        }
        push(&mut spec["domain"]["devices"]["disks"], json!({"name": name, "disk": {}, "bootOrder": order}));
        Ok(())
    }

    fn import(&mut self, flag: &'static str, text: &str) -> anyhow::Result<()> {
        let wanted = text.split(',').find_map(|pair| pair.strip_prefix("type:"));
        let Some(wanted) = wanted else { bail!(wrong(flag, "type must be specified")) };
        let Some((kind, needed, allowed)) = TYPES.iter().find(|(kind, ..)| *kind == wanted) else {
            bail!(wrong(flag, &format!("invalid volume import type \"{wanted}\", see help for supported values")));
        };
        let known: Vec<&str> = COMMON.iter().chain(*needed).chain(*allowed).copied().collect();
        let params = Params::parse(flag, text, &known)?;
        for name in *needed {
            params.need(name)?;
        }
        let mut spec = json!({"storage": {}});
        match (params.get("size"), *kind) {
            (Some(size), _) => spec["storage"] = json!({"resources": {"requests": {"storage": size}}}),
            (None, "pvc" | "snapshot" | "ds") => {}
            (None, _) => drop(params.need("size")?),
        }
        match (*kind, params.get("src").is_some()) {
            ("ds", _) => {
                let (namespace, name) = params.source()?;
                spec["sourceRef"] = json!({"kind": "DataSource", "name": name});
                if let Some(namespace) = namespace {
                    spec["sourceRef"]["namespace"] = json!(namespace);
                }
            }
            (_, true) => {
                let (namespace, name) = params.source()?;
                let Some(namespace) = namespace else {
                    bail!(params.wrong(&format!("namespace of {kind} \"{name}\" must be specified")));
                };
                spec["source"] = json!({*kind: {"name": name, "namespace": namespace}});
            }
            _ => spec["source"] = json!({*kind: source(&params, needed, allowed)?}),
        }
        let name = params.get("name").map_or_else(|| format!("imported-volume-{}", suffix()), str::to_owned);
        push(&mut self.vm["spec"]["dataVolumeTemplates"], json!({"metadata": {"name": name}, "spec": spec}));
        self.add(&params, &name, "dataVolume", &json!({"name": name}))
    }
}

fn source(params: &Params, needed: &[&str], allowed: &[&str]) -> anyhow::Result<Value> {
    let mut source = json!({});
    for name in needed.iter().chain(allowed) {
        let Some(value) = params.get(name) else { continue };
        let is_list = name.ends_with("headers");
        source[field(name)] = if is_list { json!(value.split(';').collect::<Vec<_>>()) } else { json!(value) };
    }
    if allowed.contains(&"imagestream") && params.get("url").is_some() == params.get("imagestream").is_some() {
        bail!(params.wrong("exactly one of url or imagestream must be defined"));
    }
    Ok(source)
}

fn push(list: &mut Value, item: Value) {
    match list {
        Value::Array(items) => items.push(item),
        other => *other = json!([item]),
    }
}

impl Volumes {
    /// Adds the volumes; the name of the one that the machine boots from.
    pub(super) fn add(&self, vm: &mut Value, machine: &str) -> anyhow::Result<Option<String>> {
        let mut builder = Builder { vm, boots: BTreeMap::new() };
        for (index, text) in self.volume_containerdisk.iter().enumerate() {
            let params = Params::parse("volume-containerdisk", text, &["src", "name", "bootorder"])?;
            let image = params.need("src")?;
            let name = params.get("name").map_or_else(|| format!("{machine}-containerdisk-{index}"), str::to_owned);
            builder.add(&params, &name, "containerDisk", &json!({"image": image}))?;
        }
        for text in &self.volume_pvc {
            let params = Params::parse("volume-pvc", text, &["src", "name", "bootorder"])?;
            let (namespace, claim) = params.source()?;
            if namespace.is_some() {
                bail!(params.wrong(&format!("not allowed to specify namespace of pvc \"{claim}\"")));
            }
            let name = params.get("name").unwrap_or(claim);
            builder.add(&params, name, "persistentVolumeClaim", &json!({"claimName": claim}))?;
        }
        let old = [
            ("volume-datasource", "ds", &self.volume_datasource),
            ("volume-clone-pvc", "pvc", &self.volume_clone_pvc),
            ("volume-blank", "blank", &self.volume_blank),
        ];
        for (flag, kind, texts) in old {
            for text in texts {
                builder.import(flag, &format!("type:{kind},{text}"))?;
            }
        }
        for text in &self.volume_import {
            builder.import("volume-import", text)?;
        }
        let first = builder.boots.values().next().cloned();
        let first =
            first.or_else(|| builder.vm.pointer("/spec/template/spec/volumes/0/name")?.as_str().map(str::to_owned));
        if let Some(text) = &self.volume_sysprep {
            let params = Params::parse("volume-sysprep", text, &["src", "type"])?;
            let (namespace, name) = params.source()?;
            let source = match params.get("type").unwrap_or("configmap") {
                _ if namespace.is_some() => {
                    bail!(params.wrong(&format!("not allowed to specify namespace of configmap or secret \"{name}\"")))
                }
                "configmap" => json!({"configMap": {"name": name}}),
                "secret" => json!({"secret": {"name": name}}),
                other => bail!(
                    params.wrong(&format!("invalid source type \"{other}\", supported values are: configmap, secret"))
                ),
            };
            builder.add(&params, "sysprepdisk", "sysprep", &source)?;
        }
        Ok(first)
    }
}
