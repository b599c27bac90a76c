//! How a guest is moved: the cluster's settings, overridden by the one policy that fits the guest best. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferrovirt_api::MigrationPolicy;
use ferrovirt_api::kubevirt::{MigrationConfiguration, MigrationOptions};
use ferrovirt_api::values::Quantity;

type Labels = BTreeMap<String, String>;

/// Moves at once in a cluster.
pub(crate) const PER_CLUSTER: u32 = 5;
/// Moves at once from a node.
pub(crate) const PER_NODE: u32 = 2;
/// Seconds for each GiB.
const COMPLETION_SECONDS_PER_GIB: i64 = 150;
/// Seconds without progress.
const PROGRESS_SECONDS: i64 = 150;
/// Milliseconds that a guest may stand still.
const DOWNTIME_MS: u64 = 900;
/// Seconds for volumes that only a short task needs.
const UTILITY_VOLUMES_SECONDS: i64 = 150;

/// The options of one move, and the name of the policy that they come from.
pub(crate) fn resolve(
    cluster: Option<&MigrationConfiguration>,
    policies: &[Arc<MigrationPolicy>],
    namespace: &Labels,
    guest: &Labels,
) -> (Option<String>, MigrationOptions) {
    let mut options = of_cluster(cluster.cloned().unwrap_or_default());
    let best = best(policies, namespace, guest);
    if let Some(policy) = best {
        apply(policy, &mut options);
    }
    (best.and_then(|policy| policy.metadata.name.clone()), options)
}

/// Every option gets its value here, so that what is recorded explains itself.
fn of_cluster(own: MigrationConfiguration) -> MigrationOptions {
    let post_copy = own.allow_post_copy.unwrap_or(false);
    MigrationOptions {
        node_drain_taint_key: own.node_drain_taint_key,
        parallel_outbound_migrations_per_node: own.parallel_outbound_migrations_per_node.or(Some(PER_NODE)),
        parallel_migrations_per_cluster: own.parallel_migrations_per_cluster.or(Some(PER_CLUSTER)),
        allow_auto_converge: own.allow_auto_converge.or(Some(false)),
        bandwidth_per_migration: own.bandwidth_per_migration.or_else(|| Some(Quantity::from_bytes(0))),
        completion_timeout_per_gib: own.completion_timeout_per_gib.or(Some(COMPLETION_SECONDS_PER_GIB)),
        max_downtime_ms: own.max_downtime_ms.or(Some(DOWNTIME_MS)),
        progress_timeout: own.progress_timeout.or(Some(PROGRESS_SECONDS)),
        utility_volumes_timeout: own.utility_volumes_timeout.or(Some(UTILITY_VOLUMES_SECONDS)),
        unsafe_migration_override: own.unsafe_migration_override.or(Some(false)),
        allow_post_copy: Some(post_copy),
        allow_workload_disruption: own.allow_workload_disruption.or(Some(post_copy)),
        disable_tls: own.disable_tls.or(Some(false)),
        network: own.network,
        match_se_linux_level_on_migration: own.match_se_linux_level_on_migration,
        experimental: None,
    }
}

fn apply(policy: &MigrationPolicy, options: &mut MigrationOptions) {
    let spec = &policy.spec;
    options.allow_auto_converge = spec.allow_auto_converge.or(options.allow_auto_converge);
    if let Some(bandwidth) = &spec.bandwidth_per_migration {
        options.bandwidth_per_migration = Some(bandwidth.clone());
    }
    options.completion_timeout_per_gib = spec.completion_timeout_per_gib.or(options.completion_timeout_per_gib);
    options.max_downtime_ms = spec.max_downtime_ms.or(options.max_downtime_ms);
    options.allow_post_copy = spec.allow_post_copy.or(options.allow_post_copy);
    // Whoever allows the guest to run before all of its memory is there allows it to be disturbed.
    let disruption = spec.allow_workload_disruption.or(spec.allow_post_copy);
    options.allow_workload_disruption = disruption.or(options.allow_workload_disruption);
    if let Some(experimental) = &spec.experimental {
        options.experimental = Some(experimental.clone());
    }
}

/// The policy with the most matching labels; of equals the one that says more about the guest; then the first by name.
fn best<'a>(policies: &'a [Arc<MigrationPolicy>], namespace: &Labels, guest: &Labels) -> Option<&'a MigrationPolicy> {
    let matches = |wanted: &Labels, labels: &Labels| wanted.iter().all(|(key, value)| labels.get(key) == Some(value));
    let fitting = policies.iter().map(|policy| &**policy).filter(|policy| {
        let selectors = &policy.spec.selectors;
        let is_empty =
            selectors.namespace_selector.is_empty() && selectors.virtual_machine_instance_selector.is_empty();
        !is_empty
            && matches(&selectors.namespace_selector, namespace)
            && matches(&selectors.virtual_machine_instance_selector, guest)
    });
    fitting.min_by(|one, two| {
        let score = |policy: &MigrationPolicy| {
            let selectors = &policy.spec.selectors;
            let guest = selectors.virtual_machine_instance_selector.len();
            (guest + selectors.namespace_selector.len(), guest)
        };
        score(two).cmp(&score(one)).then_with(|| one.metadata.name.cmp(&two.metadata.name))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn policy(name: &str, namespace: &[&str], guest: &[&str], more: &Value) -> Arc<MigrationPolicy> {
        let labels = |keys: &[&str]| -> Value { keys.iter().map(|key| ((*key).to_owned(), json!("yes"))).collect() };
        let selectors =
            json!({"namespaceSelector": labels(namespace), "virtualMachineInstanceSelector": labels(guest)});
        let mut spec = more.clone();
        spec["selectors"] = selectors;
        Arc::new(serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap())
    }

    fn labels(keys: &[&str]) -> Labels {
        keys.iter().map(|key| ((*key).to_owned(), "yes".to_owned())).collect()
    }

    fn chosen(policies: &[Arc<MigrationPolicy>]) -> Option<String> {
        resolve(None, policies, &labels(&["a", "b"]), &labels(&["x", "y"])).0
    }

    #[test]
    fn the_policy_that_fits_best_is_taken() {
        let none = json!({});
        let one = policy("one", &["a"], &[], &none);
        assert_eq!(chosen(&[]), None);
        assert_eq!(chosen(&[policy("other", &["c"], &[], &none)]), None);
        assert_eq!(chosen(&[policy("half", &["a"], &["z"], &none)]), None, "all labels must match");
        assert_eq!(chosen(&[policy("empty", &[], &[], &none)]), None, "one that selects nothing is for nobody");
        assert_eq!(chosen(std::slice::from_ref(&one)), Some("one".into()));
        assert_eq!(chosen(&[one.clone(), policy("two", &["a", "b"], &[], &none)]), Some("two".into()), "more labels");
        assert_eq!(chosen(&[one.clone(), policy("zz", &[], &["x"], &none)]), Some("zz".into()), "more of the guest");
        assert_eq!(chosen(&[one, policy("nul", &["b"], &[], &none)]), Some("nul".into()), "the first by name");
    }

    #[test]
    fn a_policy_overrides_what_it_names_and_nothing_else() {
        let cluster: MigrationConfiguration =
            serde_json::from_value(json!({"bandwidthPerMigration": "64Mi", "allowAutoConverge": true})).unwrap();
        let policies = [policy("p", &["a"], &[], &json!({"allowPostCopy": true, "bandwidthPerMigration": "1Mi"}))];
        let (name, options) = resolve(Some(&cluster), &policies, &labels(&["a"]), &labels(&[]));
        assert_eq!(name.as_deref(), Some("p"));
        let seen = serde_json::to_value(&options).unwrap();
        assert_eq!(seen["bandwidthPerMigration"], "1Mi");
        assert_eq!((&seen["allowAutoConverge"], &seen["allowPostCopy"]), (&json!(true), &json!(true)));
        assert_eq!(seen["allowWorkloadDisruption"], true, "it follows from post-copy");
        assert_eq!(seen["completionTimeoutPerGiB"], 150);
        let policies = [policy("p", &["a"], &[], &json!({"allowPostCopy": true, "allowWorkloadDisruption": false}))];
        let (_, options) = resolve(None, &policies, &labels(&["a"]), &labels(&[]));
        assert_eq!(options.allow_workload_disruption, Some(false), "unless it says so itself");
    }

    #[test]
    fn without_settings_every_option_has_its_default() {
        let seen = serde_json::to_value(resolve(None, &[], &labels(&[]), &labels(&[])).1).unwrap();
        let expected = json!({
            "parallelOutboundMigrationsPerNode": 2, "parallelMigrationsPerCluster": 5, "allowAutoConverge": false,
            "bandwidthPerMigration": "0", "completionTimeoutPerGiB": 150, "maxDowntimeMs": 900, "progressTimeout": 150,
            "utilityVolumesTimeout": 150, "unsafeMigrationOverride": false, "allowPostCopy": false,
            "allowWorkloadDisruption": false, "disableTLS": false,
        });
        assert_eq!(seen, expected);
    }
}
