//! `virtctl validate`: what the cluster's admission would say, without a cluster.

use std::fmt::Write;

use ferrovirt_api::defaults::{Inputs, default_migration, default_vm, default_vmi};
use ferrovirt_api::kubevirt::Configuration;
use ferrovirt_api::validation::{
    Cause, check_kubevirt, check_migration_policy, check_new_migration, check_vm, check_vmi, kubevirt_warnings,
    vm_warnings, vmi_warnings,
};
use ferrovirt_api::vmi::Architecture;
use ferrovirt_api::{
    DecodeError, FromJson, KubeVirt, MigrationPolicy, VirtualMachine, VirtualMachineInstance,
    VirtualMachineInstanceMigration, decode,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::objects::manifests::{Manifest, Sources};
use crate::output::{Format, print};

/// Arguments of `validate`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    #[command(flatten)]
    sources: Sources,
    /// Format of the result. Default: a line for each finding.
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,
}

/// Something that is wrong, or worth knowing, about an object.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    field: String,
    reason: String,
    message: String,
}

/// What was found about one object.
struct Report {
    place: String,
    object: String,
    is_checked: bool,
    findings: Vec<Finding>,
    warnings: Vec<String>,
}

/// `virtctl validate`: 0 when every object would be admitted, 1 otherwise.
pub(crate) fn run(args: &Args) -> anyhow::Result<i32> {
    let reports: Vec<Report> = args.sources.read()?.iter().map(report).collect();
    let text = match args.output {
        Some(format) => format.text(&json!(reports.iter().map(as_json).collect::<Vec<_>>()))?,
        None => reports.iter().map(as_text).collect(),
    };
    print(&text)?;
    Ok(i32::from(reports.iter().any(|report| !report.findings.is_empty())))
}

fn as_text(report: &Report) -> String {
    let Report { place, object, is_checked, findings, warnings } = report;
    let mut text = String::new();
    if !is_checked {
        let _ = writeln!(text, "{place}: {object} is not checked: only kinds of kubevirt.io are");
    } else if findings.is_empty() {
        let _ = writeln!(text, "{place}: {object} is valid");
    }
    for Finding { field, message, .. } in findings {
        // Many messages begin with their field.
        let field = if field.is_empty() || message.starts_with(field) { String::new() } else { format!("{field}: ") };
        let _ = writeln!(text, "{place}: {object}: {field}{message}");
    }
    for warning in warnings {
        let _ = writeln!(text, "{place}: {object}: warning: {warning}");
    }
    text
}

fn as_json(report: &Report) -> Value {
    let cause =
        |finding: &Finding| json!({"field": finding.field, "reason": finding.reason, "message": finding.message});
    json!({
        "file": report.place, "object": report.object, "checked": report.is_checked, "valid": report.findings.is_empty(),
        "causes": report.findings.iter().map(cause).collect::<Vec<_>>(), "warnings": report.warnings,
    })
}

fn report(manifest: &Manifest) -> Report {
    let object = &manifest.object;
    let (kind, name) = (object["kind"].as_str().unwrap_or_default(), object["metadata"]["name"].as_str());
    let judged = judge(object);
    let is_checked = judged.is_some();
    let (findings, warnings) = judged.unwrap_or_default();
    let object = format!("{kind} {}", name.unwrap_or("without a name"));
    Report { place: manifest.place.clone(), object, is_checked, findings, warnings }
}

type Judgement = (Vec<Finding>, Vec<String>);

/// Defaults and rules of the object's kind, with the configuration that a new cluster has; none for kinds of others.
fn judge(object: &Value) -> Option<Judgement> {
    let cluster = Configuration::default();
    let inputs = Inputs { now: Time(Timestamp::UNIX_EPOCH), uuid: 0, architecture: architecture() };
    let group = object["apiVersion"].as_str().and_then(|version| version.split('/').next()).unwrap_or_default();
    Some(match (group, object["kind"].as_str().unwrap_or_default()) {
        ("kubevirt.io", "VirtualMachine") => typed(object, |mut vm: VirtualMachine| {
            default_vm(&mut vm, &cluster, &inputs, true);
            let warnings = vm_warnings(&vm, &cluster, &inputs);
            (check_vm(&vm, &cluster, &inputs, false), warnings)
        }),
        ("kubevirt.io", "VirtualMachineInstance") => typed(object, |mut vmi: VirtualMachineInstance| {
            default_vmi(&mut vmi, &cluster, &inputs);
            let warnings = vmi_warnings(&vmi, &cluster);
            (check_vmi(&vmi, &cluster, false), warnings)
        }),
        ("kubevirt.io", "VirtualMachineInstanceMigration") => {
            typed(object, |mut migration: VirtualMachineInstanceMigration| {
                default_migration(&mut migration);
                // Whether the guest is there, only a cluster knows.
                let causes = check_new_migration(&migration, None, &[], false);
                (causes.into_iter().filter(|cause| cause.reason.as_str() != "FieldValueNotFound").collect(), Vec::new())
            })
        }
        ("kubevirt.io", "KubeVirt") => {
            typed(object, |kubevirt: KubeVirt| (check_kubevirt(&kubevirt), kubevirt_warnings(&kubevirt)))
        }
        ("migrations.kubevirt.io", "MigrationPolicy") => {
            typed(object, |policy: MigrationPolicy| (check_migration_policy(&policy, &cluster), Vec::new()))
        }
        _ => return None,
    })
}

fn architecture() -> Architecture {
    match std::env::consts::ARCH {
        "aarch64" => Architecture::Arm64,
        "s390x" => Architecture::S390x,
        _ => Architecture::Amd64,
    }
}

/// Reads the object as its type and judges it. Fields that the type does not have would be dropped by a cluster; here they are mistakes.
fn typed<T: FromJson + Serialize>(object: &Value, judge: impl FnOnce(T) -> (Vec<Cause>, Vec<String>)) -> Judgement {
    let read: Result<T, DecodeError> = decode(object);
    let typed = match read {
        Ok(typed) => typed,
        Err(error) => {
            let finding = Finding { field: error.path, reason: "FieldValueInvalid".to_owned(), message: error.problem };
            return (vec![finding], Vec::new());
        }
    };
    let mut findings = Vec::new();
    if let Ok(known) = serde_json::to_value(&typed) {
        unknown(object, &known, "", &mut findings);
    }
    let (causes, warnings) = judge(typed);
    findings.extend(causes.into_iter().map(|cause| Finding {
        field: cause.field,
        reason: cause.reason.as_str().to_owned(),
        message: cause.message,
    }));
    (findings, warnings)
}

/// What the author wrote and the type did not keep.
fn unknown(written: &Value, kept: &Value, path: &str, findings: &mut Vec<Finding>) {
    match (written, kept) {
        (Value::Object(written), Value::Object(kept)) => {
            for (name, value) in written {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match kept.get(name) {
                    Some(kept) => unknown(value, kept, &path, findings),
                    None if is_empty(value) => {}
                    None => findings.push(Finding {
                        field: path,
                        reason: "FieldValueNotSupported".to_owned(),
                        message: "there is no such field: is it misspelt, or in the wrong place?".to_owned(),
                    }),
                }
            }
        }
        (Value::Array(written), Value::Array(kept)) => {
            for (index, (written, kept)) in written.iter().zip(kept).enumerate() {
                unknown(written, kept, &format!("{path}[{index}]"), findings);
            }
        }
        _ => {}
    }
}

/// Types leave out what says nothing.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.values().all(is_empty),
        Value::Array(list) => list.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}
