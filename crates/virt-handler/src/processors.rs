//! The processors that QEMU can play on this node, and the features that guests can ask for: QEMU is asked itself, as it alone knows
//! what it and the hardware can do together.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use ferrovirt_domain::Accelerator;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use crate::probe::QEMU;

/// How long QEMU may take for its answers.
const PATIENCE: Duration = Duration::from_secs(20);
/// Models that no guest should get, by the beginning of their names: too old, or no models of a real processor.
const OBSOLETE: [&str; 13] = [
    "486", "pentium", "coreduo", "n270", "core2duo", "Conroe", "athlon", "phenom", "qemu", "kvm", "base", "host", "max",
];
/// Properties of QEMU's processors that are switches of QEMU and no features.
const SWITCHES: [&str; 14] = [
    "check",
    "cpuid-0xb",
    "enforce",
    "fill-mtrr-mask",
    "full-cpuid-auto-level",
    "hotpluggable",
    "hotplugged",
    "kvm",
    "l3-cache",
    "legacy-cache",
    "migratable",
    "realized",
    "tcg-cpuid",
    "vmware-cpuid-freq",
];

/// What there is.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Processors {
    /// Named models that run here with everything they are made of.
    pub models: BTreeSet<String>,
    /// Features, under every name that QEMU knows for them.
    pub features: BTreeSet<String>,
    /// `Intel` or `AMD`; empty where it is neither.
    pub vendor: String,
}

/// Asks QEMU and the kernel.
pub(crate) async fn processors(accelerator: Accelerator) -> Processors {
    let answers = match tokio::time::timeout(PATIENCE, ask(accelerator)).await {
        Ok(Ok(answers)) => answers,
        Ok(Err(error)) => {
            tracing::warn!(%error, "QEMU does not say which processors it can play: guests that name one find no node");
            Vec::new()
        }
        Err(_) => {
            tracing::warn!("QEMU does not answer: guests that name a processor find no node");
            Vec::new()
        }
    };
    let [definitions, expansion] = [answers.first(), answers.get(1)].map(|answer| answer.unwrap_or(&Value::Null));
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    Processors { models: models(definitions), features: features(expansion), vendor: vendor(&cpuinfo).to_owned() }
}

/// The definitions of all models, and the best one in full.
async fn ask(accelerator: Accelerator) -> std::io::Result<Vec<Value>> {
    let (accelerator, best) = match accelerator {
        Accelerator::Kvm => ("kvm", "host"),
        Accelerator::Tcg => ("tcg", "max"),
    };
    let mut qemu = Command::new(QEMU)
        .args(["-machine", "q35", "-accel", accelerator, "-m", "2", "-S"])
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-qmp", "stdio"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let (Some(mut input), Some(output)) = (qemu.stdin.take(), qemu.stdout.take()) else { return Ok(Vec::new()) };
    for command in [
        json!({"execute": "qmp_capabilities"}),
        json!({"execute": "query-cpu-definitions", "id": "wanted"}),
        json!({"execute": "query-cpu-model-expansion", "id": "wanted", "arguments": {"type": "full", "model": {"name": best}}}),
        json!({"execute": "quit"}),
    ] {
        input.write_all(format!("{command}\n").as_bytes()).await?;
    }
    let mut lines = BufReader::new(output).lines();
    let mut answers = Vec::new();
    while let Some(line) = lines.next_line().await? {
        let mut answer: Value = serde_json::from_str(&line)?;
        if answer["id"] == "wanted" {
            answers.push(answer["return"].take());
        }
    }
    qemu.wait().await?;
    Ok(answers)
}

/// Models without a version that lack nothing here.
fn models(definitions: &Value) -> BTreeSet<String> {
    let usable = definitions.as_array().into_iter().flatten().filter(|model| {
        model["unavailable-features"].as_array().is_some_and(Vec::is_empty) && model["deprecated"] != json!(true)
    });
    let names = usable.filter_map(|model| model["name"].as_str());
    names.filter(|name| !name.contains("-v") && !is_obsolete(name)).map(str::to_owned).collect()
}

/// Whether no guest should get this model.
pub(crate) fn is_obsolete(model: &str) -> bool {
    OBSOLETE.iter().any(|old| model.starts_with(old))
}

fn features(expansion: &Value) -> BTreeSet<String> {
    let properties = expansion["model"]["props"].as_object().into_iter().flatten();
    let on = properties.filter(|(_, value)| **value == json!(true)).map(|(name, _)| name);
    on.filter(|name| !name.starts_with("x-") && !SWITCHES.contains(&name.as_str())).cloned().collect()
}

fn vendor(cpuinfo: &str) -> &'static str {
    let line = cpuinfo.lines().find_map(|line| line.strip_prefix("vendor_id")).unwrap_or_default();
    match line.trim_start_matches([' ', '\t', ':']).trim_end() {
        "GenuineIntel" => "Intel",
        "AuthenticAMD" => "AMD",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_models_that_lack_nothing_are_offered() {
        let model = |name: &str, missing: &[&str], deprecated: bool| json!({"name": name, "unavailable-features": missing, "deprecated": deprecated});
        let definitions = json!([
            model("Nehalem", &[], false),
            model("Nehalem-v1", &[], false),
            model("Haswell", &["rtm"], false),
            model("Opteron_G1", &[], true),
            model("qemu64", &[], false),
            {"name": "EPYC"},
        ]);
        assert_eq!(Vec::from_iter(models(&definitions)), ["Nehalem"]);
    }

    #[test]
    fn switches_are_no_features() {
        let expansion =
            json!({"model": {"props": {"aes": true, "avx": false, "check": true, "x-force": true, "level": 4}}});
        assert_eq!(Vec::from_iter(features(&expansion)), ["aes"]);
    }

    #[test]
    fn the_vendor_is_known_by_its_signature() {
        assert_eq!(vendor("processor\t: 0\nvendor_id\t: AuthenticAMD\n"), "AMD");
        assert_eq!(vendor("vendor_id\t: GenuineIntel\n"), "Intel");
        assert_eq!(vendor("processor\t: 0\n"), "");
    }

    #[tokio::test]
    async fn qemu_says_what_it_can_play() {
        let found = processors(Accelerator::Tcg).await;
        assert!(found.models.contains("Nehalem"), "{found:?}");
        assert!(!found.models.contains("max"), "{found:?}");
        assert!(["aes", "sse4.1", "fpu"].iter().all(|feature| found.features.contains(*feature)), "{found:?}");
    }
}
