//! What users change of the objects that get installed: flags and patches of `spec.customizeComponents`, and how much components log.
//!
//! An object whose change cannot be made is left as it is, and said so; everything else goes on, certificates above all.

use std::collections::{BTreeMap, BTreeSet};

use ferrovirt_api::KubeVirt;
use ferrovirt_api::kubevirt::{ComponentPatch, PatchType};
use ferrovirt_install::{manage, names};
use ferrovirt_machinery::builtin;
use ferrovirt_machinery::patch::{PatchError, json, merge, strategic};
use serde_json::{Value, json};

use crate::present::Id;

/// The flags that each component knows, by its name.
pub type Flags = BTreeMap<&'static str, BTreeSet<String>>;

/// KubeVirt's flag for how much is logged. Ours are told by an environment variable.
const VERBOSITY: &str = "v";
const LOG: &str = "RUST_LOG";

/// A wanted object.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wanted {
    /// What it should be.
    pub(super) object: Value,
    /// Why it is left as it is instead.
    pub(super) unfit: Option<String>,
}

/// What is wanted after all changes.
pub(super) struct Customized {
    pub(super) objects: Vec<Wanted>,
    /// Patches that nothing fits. KubeVirt has objects that are not here, so they are no mistake.
    pub(super) unused: Vec<String>,
}

/// Makes the changes that a `KubeVirt` object asks for: flags first, then patches in their order.
pub(super) fn customized(objects: Vec<Value>, kubevirt: &KubeVirt, known: &Flags) -> Customized {
    let wishes = kubevirt.spec.customize_components.as_ref();
    let patches = wishes.map_or(&[][..], |wishes| &wishes.patches);
    let mut unused: BTreeSet<usize> = (0..patches.len()).collect();
    let mut customize = |object: Value| {
        let chosen: Vec<usize> = (0..patches.len()).filter(|index| is_for(&patches[*index], &object)).collect();
        unused.retain(|index| !chosen.contains(index));
        let flags = component_flags(kubevirt, &object);
        if flags.is_none() && chosen.is_empty() {
            return Wanted { object, unfit: None };
        }
        let changed = flags.map_or_else(|| Ok(object.clone()), |flags| flags.added(&object, known));
        let changed = changed.and_then(|object| {
            chosen.iter().try_fold(object, |object, index| {
                let at = |problem| format!("spec.customizeComponents.patches[{index}]: {problem}");
                patched(object, &patches[*index]).map_err(at)
            })
        });
        match changed {
            Ok(object) => Wanted { object, unfit: None },
            Err(problem) => {
                let unfit = Some(format!("{} is left as it is: {problem}", Id::of(&object)));
                Wanted { object, unfit }
            }
        }
    };
    let objects = objects.into_iter().map(&mut customize).collect();
    let without = |index: usize| {
        let ComponentPatch { resource_type, resource_name, .. } = &patches[index];
        format!("spec.customizeComponents.patches[{index}]: there is no {resource_type} {resource_name}")
    };
    Customized { objects, unused: unused.into_iter().map(without).collect() }
}

fn is_for(patch: &ComponentPatch, object: &Value) -> bool {
    let fits =
        |wanted: &str, is: &Value| wanted == "*" || is.as_str().is_some_and(|is| is.eq_ignore_ascii_case(wanted));
    fits(&patch.resource_type, &object["kind"]) && fits(&patch.resource_name, &object["metadata"]["name"])
}

fn patched(object: Value, patch: &ComponentPatch) -> Result<Value, String> {
    let (id, version) = (Id::of(&object), object["apiVersion"].clone());
    let changes: Value = serde_json::from_str(&patch.patch).map_err(|error| format!("patch is not JSON: {error}"))?;
    let changed = match patch.r#type {
        PatchType::Json => json::apply(object, &changes),
        PatchType::Merge => merge::apply(object, changes),
        PatchType::Strategic => {
            let name = version.as_str().unwrap_or_default();
            let (group, name) = name.split_once('/').unwrap_or(("", name));
            let schema = builtin::schema(group, name, &id.kind);
            let schema = schema.ok_or("this kind has no strategic patches: use merge or json")?;
            strategic::apply(&schema, object, changes)
        }
    };
    let mut changed = changed.map_err(|error| match error {
        PatchError::Rejected { detail } => detail,
        other => other.to_string(),
    })?;
    if (Id::of(&changed), &changed["apiVersion"]) != (id, &version) {
        return Err("kind and name of an object cannot be changed".to_owned());
    }
    let is_map = |value: &Value| value.is_null() || value.is_object();
    if !["labels", "annotations"].iter().all(|field| is_map(&changed["metadata"][field])) {
        return Err("labels and annotations have to stay maps".to_owned());
    }
    // How the operator finds it again.
    manage(&mut changed);
    Ok(changed)
}

/// What a component shall be told when it starts.
struct ComponentFlags<'a> {
    /// Under `spec.customizeComponents.flags`.
    field: &'static str,
    flags: Vec<(&'a str, &'a str)>,
    verbosity: Option<u32>,
}

/// The flags for the component whose pods an object makes.
fn component_flags<'a>(kubevirt: &'a KubeVirt, object: &Value) -> Option<ComponentFlags<'a>> {
    let kind = object["kind"].as_str()?;
    if !matches!(kind, "Deployment" | "DaemonSet") {
        return None;
    }
    let flags = kubevirt.spec.customize_components.as_ref().and_then(|wishes| wishes.flags.as_ref());
    let configuration = kubevirt.spec.configuration.as_ref().and_then(|it| it.developer_configuration.as_ref());
    let log = configuration.and_then(|it| it.log_verbosity.as_ref());
    let (field, flags, verbosity) = match object["metadata"]["name"].as_str()? {
        names::API => ("api", flags.map(|it| &it.api), log.and_then(|it| it.virt_api)),
        names::CONTROLLER => ("controller", flags.map(|it| &it.controller), log.and_then(|it| it.virt_controller)),
        names::HANDLER => ("handler", flags.map(|it| &it.handler), log.and_then(|it| it.virt_handler)),
        _ => return None,
    };
    let flags: Vec<_> = flags.into_iter().flatten().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    (!flags.is_empty() || verbosity.is_some()).then_some(ComponentFlags { field, flags, verbosity })
}

impl ComponentFlags<'_> {
    fn added(&self, object: &Value, known: &Flags) -> Result<Value, String> {
        let mut object = object.clone();
        let component = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let container = &mut object["spec"]["template"]["spec"]["containers"][0];
        let mut verbosity = self.verbosity;
        for (name, value) in &self.flags {
            let at = |problem: &str| format!("spec.customizeComponents.flags.{}.{name}: {problem}", self.field);
            if *name == VERBOSITY {
                verbosity = Some(value.parse().map_err(|_| at(&format!("{value} is no number")))?);
                continue;
            }
            let flag = format!("--{}", name.to_ascii_lowercase());
            let flags = known.get(component.as_str());
            if !flags.is_some_and(|flags| flags.contains(&flag[2..])) {
                let flags: Vec<_> = flags.into_iter().flatten().map(String::as_str).collect();
                return Err(at(&format!("{component} has no such flag; it has {VERBOSITY}, {}", flags.join(", "))));
            }
            let command = container["command"].as_array_mut().ok_or("there is no command")?;
            if command.iter().any(|word| *word == flag) {
                return Err(at("the operator sets this one itself"));
            }
            command.push(if value.is_empty() { flag.into() } else { format!("{flag}={value}").into() });
        }
        if let (Some(filter), Some(variables)) = (verbosity.and_then(filter), container["env"].as_array_mut()) {
            variables.push(json!({"name": LOG, "value": filter}));
        }
        Ok(object)
    }
}

/// What is logged at one of KubeVirt's levels, of which 2 is the usual one and 4 is for debugging.
fn filter(verbosity: u32) -> Option<&'static str> {
    match verbosity {
        0..=3 => None,
        4 | 5 => Some("info,ferrovirt=debug"),
        _ => Some("info,ferrovirt=trace"),
    }
}

#[cfg(test)]
#[path = "customize_tests.rs"]
mod tests;
