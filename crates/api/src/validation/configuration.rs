//! Which fields of the `KubeVirt` object's spec do something: all of them, in one list. What does nothing yet is accepted, since
//! manifests are shared between clusters, and its author is told so by the field's name.
//!
//! A new field is in this list or the tests fail. A row is about all that is below its field, unless there are rows for parts of it.

use serde_json::Value;

use crate::kubevirt::KubeVirtSpec;

/// What a field does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// What it says.
    Works,
    /// Nothing yet.
    Nothing,
    /// Nothing yet, also where it is an empty object: that it is there is the wish.
    NothingWhenThere,
    /// Nothing yet; but with this value it asks for what holds anyway.
    HoldsAlready(&'static str),
}

use Effect::{HoldsAlready, Nothing, NothingWhenThere, Works};

const FIELDS: &[(&str, Effect)] = &[
    ("imageTag", Works),
    ("imageRegistry", Works),
    ("imagePullPolicy", Works),
    ("imagePullSecrets", Works),
    ("monitorNamespace", Nothing),
    ("serviceMonitorNamespace", Nothing),
    ("monitorAccount", Nothing),
    ("workloadUpdateStrategy", Nothing),
    ("uninstallStrategy", Works),
    ("certificateRotateStrategy", Works),
    ("productVersion", Nothing),
    ("productName", Nothing),
    ("productComponent", Nothing),
    ("synchronizationPort", Nothing),
    ("infra", Works),
    ("workloads", Works),
    ("customizeComponents", Works),
    ("configuration.cpuModel", Works),
    ("configuration.cpuRequest", Works),
    ("configuration.developerConfiguration.featureGates", Works),
    ("configuration.developerConfiguration.disabledFeatureGates", Works),
    ("configuration.developerConfiguration.pvcTolerateLessSpaceUpToPercent", Nothing),
    ("configuration.developerConfiguration.minimumReservePVCBytes", Nothing),
    ("configuration.developerConfiguration.memoryOvercommit", Works),
    ("configuration.developerConfiguration.nodeSelectors", Works),
    ("configuration.developerConfiguration.useEmulation", Works),
    ("configuration.developerConfiguration.cpuAllocationRatio", Works),
    ("configuration.developerConfiguration.minimumClusterTSCFrequency", Nothing),
    ("configuration.developerConfiguration.diskVerification", Nothing),
    ("configuration.developerConfiguration.logVerbosity.virtAPI", Works),
    ("configuration.developerConfiguration.logVerbosity.virtController", Works),
    ("configuration.developerConfiguration.logVerbosity.virtHandler", Works),
    ("configuration.developerConfiguration.logVerbosity.virtLauncher", Nothing),
    ("configuration.developerConfiguration.logVerbosity.virtOperator", Nothing),
    ("configuration.developerConfiguration.logVerbosity.virtSynchronizationController", Nothing),
    ("configuration.developerConfiguration.logVerbosity.nodeVerbosity", Nothing),
    ("configuration.developerConfiguration.clusterProfiler", HoldsAlready("false")),
    ("configuration.emulatedMachines", Works),
    ("configuration.imagePullPolicy", Works),
    ("configuration.migrations.nodeDrainTaintKey", Works),
    ("configuration.migrations.parallelOutboundMigrationsPerNode", Works),
    ("configuration.migrations.parallelMigrationsPerCluster", Works),
    ("configuration.migrations.allowAutoConverge", Works),
    ("configuration.migrations.bandwidthPerMigration", Works),
    ("configuration.migrations.completionTimeoutPerGiB", Works),
    ("configuration.migrations.maxDowntimeMs", Works),
    ("configuration.migrations.progressTimeout", Works),
    ("configuration.migrations.utilityVolumesTimeout", Nothing),
    ("configuration.migrations.unsafeMigrationOverride", Works),
    ("configuration.migrations.allowPostCopy", Works),
    ("configuration.migrations.allowWorkloadDisruption", Works),
    ("configuration.migrations.disableTLS", HoldsAlready("false")),
    ("configuration.migrations.network", Nothing),
    ("configuration.migrations.matchSELinuxLevelOnMigration", Nothing),
    ("configuration.machineType", Works),
    ("configuration.network.defaultNetworkInterface", Works),
    ("configuration.network.permitSlirpInterface", HoldsAlready("false")),
    ("configuration.network.permitBridgeInterfaceOnPodNetwork", Works),
    ("configuration.network.binding", Nothing),
    ("configuration.ovmfPath", Nothing),
    ("configuration.selinuxLauncherType", Works),
    ("configuration.defaultRuntimeClass", Works),
    ("configuration.smbios", Nothing),
    ("configuration.architectureConfiguration.amd64.machineType", Works),
    ("configuration.architectureConfiguration.amd64.emulatedMachines", Works),
    ("configuration.architectureConfiguration.amd64.ovmfPath", Nothing),
    ("configuration.architectureConfiguration.arm64", Nothing),
    ("configuration.architectureConfiguration.ppc64le", Nothing),
    ("configuration.architectureConfiguration.s390x", Nothing),
    ("configuration.architectureConfiguration.defaultArchitecture", Works),
    ("configuration.evictionStrategy", Works),
    ("configuration.additionalGuestMemoryOverheadRatio", Works),
    ("configuration.supportContainerResources", Works),
    ("configuration.supportedGuestAgentVersions", Nothing),
    ("configuration.memBalloonStatsPeriod", HoldsAlready("10")),
    ("configuration.permittedHostDevices", Nothing),
    ("configuration.mediatedDevicesConfiguration", Nothing),
    ("configuration.minCPUModel", Nothing),
    ("configuration.obsoleteCPUModels", Nothing),
    ("configuration.virtualMachineInstancesPerNode", Nothing),
    ("configuration.apiConfiguration", Nothing),
    ("configuration.webhookConfiguration", Nothing),
    ("configuration.controllerConfiguration", Nothing),
    ("configuration.handlerConfiguration", Nothing),
    ("configuration.tlsConfiguration", Nothing),
    ("configuration.seccompConfiguration", Works),
    ("configuration.vmStateStorageClass", Nothing),
    ("configuration.virtualMachineOptions.disableFreePageReporting", NothingWhenThere),
    ("configuration.virtualMachineOptions.disableSerialConsoleLog", NothingWhenThere),
    ("configuration.ksmConfiguration", NothingWhenThere),
    ("configuration.autoCPULimitNamespaceLabelSelector", NothingWhenThere),
    ("configuration.liveUpdateConfiguration", Works),
    ("configuration.vmRolloutStrategy", Works),
    ("configuration.commonInstancetypesDeployment.enabled", HoldsAlready("false")),
    ("configuration.virtTemplateDeployment.enabled", HoldsAlready("false")),
    ("configuration.instancetype", Nothing),
    ("configuration.hypervisors", HoldsAlready(r#"[{"name":"kvm"}]"#)),
    ("configuration.changedBlockTrackingLabelSelectors", Nothing),
    ("configuration.persistentReservationConfiguration.enabled", HoldsAlready("false")),
    ("configuration.confidentialCompute", Nothing),
    ("configuration.roleAggregationStrategy", Works),
];

/// A sentence for each field that is set and does nothing.
pub(super) fn warnings(spec: &KubeVirtSpec) -> Vec<String> {
    let spec = serde_json::to_value(spec).unwrap_or_default();
    let idle = FIELDS.iter().filter(|(path, effect)| is_idle(&spec, path, *effect));
    idle.map(|(path, _)| format!("spec.{path} is not supported yet and has no effect")).collect()
}

/// Whether a field is set and does nothing.
fn is_idle(spec: &Value, path: &str, effect: Effect) -> bool {
    let Some(value) = path.split('.').try_fold(spec, |value, field| value.get(field)) else { return false };
    match effect {
        Works => false,
        Nothing => !is_empty(value),
        NothingWhenThere => !value.is_null(),
        HoldsAlready(holds) => !is_empty(value) && serde_json::from_str::<Value>(holds).ok().as_ref() != Some(value),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(elements) => elements.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::crds::structural::{Descriptions, structural_schema};

    /// Fields of the schema that no row is about, and the rows that were met on the way.
    fn walk<'a>(schema: &Value, path: &str, met: &mut Vec<&'a str>, missing: &mut Vec<String>, rows: &[&'a str]) {
        if let Some(row) = rows.iter().find(|row| **row == path) {
            met.push(row);
            return;
        }
        let has_parts = path.is_empty() || rows.iter().any(|row| row.starts_with(&format!("{path}.")));
        let Some(fields) = schema["properties"].as_object().filter(|_| has_parts) else {
            missing.push(path.to_owned());
            return;
        };
        for (name, field) in fields {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            walk(field, &path, met, missing, rows);
        }
    }

    #[test]
    fn every_field_is_in_the_list_once_and_no_other() {
        let schema = structural_schema::<KubeVirtSpec>(Descriptions::Drop);
        let rows: Vec<&str> = FIELDS.iter().map(|(path, _)| *path).collect();
        let (mut met, mut missing) = (Vec::new(), Vec::new());
        walk(&schema, "", &mut met, &mut missing, &rows);
        assert!(missing.is_empty(), "say in this file what these do: {missing:?}");
        let stale: Vec<&&str> = rows.iter().filter(|row| !met.contains(row)).collect();
        assert!(stale.is_empty(), "there are no such fields, or rows for them above: {stale:?}");
        assert_eq!(met.len(), rows.len(), "a field has two rows");
    }

    fn told(spec: Value) -> Vec<String> {
        let told = warnings(&serde_json::from_value(spec).unwrap());
        let end = " is not supported yet and has no effect";
        told.iter().map(|warning| warning.strip_suffix(end).unwrap().to_owned()).collect()
    }

    #[test]
    fn what_does_nothing_is_told_by_name() {
        let configuration = json!({
            "permittedHostDevices": {"pciHostDevices": [{"pciVendorSelector": "10DE:1EB8", "resourceName": "a/b"}]},
            "mediatedDevicesConfiguration": {"mediatedDeviceTypes": ["nvidia-222"]},
            "ksmConfiguration": {"nodeLabelSelector": {}},
            "network": {"defaultNetworkInterface": "masquerade", "binding": {"passt": {"sidecarImage": "a"}}},
            "vmStateStorageClass": "fast",
            "virtualMachineOptions": {"disableSerialConsoleLog": {}},
            "migrations": {"parallelMigrationsPerCluster": 2, "disableTLS": true},
            "commonInstancetypesDeployment": {"enabled": true},
        });
        let spec = json!({"configuration": configuration, "monitorAccount": "prometheus", "imageTag": "v1"});
        let expected = [
            "spec.monitorAccount",
            "spec.configuration.migrations.disableTLS",
            "spec.configuration.network.binding",
            "spec.configuration.permittedHostDevices",
            "spec.configuration.mediatedDevicesConfiguration",
            "spec.configuration.vmStateStorageClass",
            "spec.configuration.virtualMachineOptions.disableSerialConsoleLog",
            "spec.configuration.ksmConfiguration",
            "spec.configuration.commonInstancetypesDeployment.enabled",
        ];
        assert_eq!(told(spec), expected);
    }

    #[test]
    fn what_holds_anyway_and_the_usual_manifest_are_nothing_to_talk_about() {
        let usual = json!({
            "certificateRotateStrategy": {}, "customizeComponents": {}, "workloadUpdateStrategy": {},
            "imagePullPolicy": "IfNotPresent", "configuration": {"developerConfiguration": {"featureGates": []}},
        });
        assert!(told(usual).is_empty());
        let holds = json!({"configuration": {
            "migrations": {"disableTLS": false}, "commonInstancetypesDeployment": {"enabled": false},
            "hypervisors": [{"name": "kvm"}], "memBalloonStatsPeriod": 10, "permittedHostDevices": {},
        }});
        assert!(told(holds).is_empty());
    }
}
