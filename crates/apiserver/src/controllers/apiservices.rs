//! `APIService`s: one for every group version that is served here, and the health of those that others serve.
//!
//! | served by | label `kube-aggregator.kubernetes.io/automanaged` | `Available` |
//! |---|---|---|
//! | built-in kinds | `onstart`: made at start, not made again when somebody deletes it | always |
//! | CRDs, code of this process | `true`: made and removed with what it stands for | always |
//! | a service | none: it is the user's | as found out by asking |

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::Housekeeper;
use super::crds::set_condition;
use super::queue::Queue;
use crate::handlers::write::format_time;
use crate::http::options::DeleteOptions;
use crate::internal::{Internal, Place};
use crate::outgoing::endpoints::Backends;
use crate::server::Server;
use crate::status::ApiResult;
use crate::store::{Event, Object};

const STORAGE: &str = "apiregistration.k8s.io/apiservices";
const CRDS: &str = "apiextensions.k8s.io/customresourcedefinitions";
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// How often extension servers are asked even though nothing changed.
const PERIOD: Duration = Duration::from_secs(30);
/// The first wait before something that failed is tried again; it doubles up to [`PERIOD`].
const RETRY: Duration = Duration::from_millis(200);

/// The state of the controller.
#[derive(Default)]
pub(super) struct ApiServices {
    registrations: Queue<String>,
    checks: Queue<String>,
    /// What every CRD serves.
    custom: Mutex<HashMap<Arc<str>, Served>>,
    /// Names that were brought in order since the start.
    settled: Mutex<HashSet<String>>,
    /// How often in a row a name failed.
    failures: Mutex<HashMap<String, u32>>,
}

/// Group and served versions of a CRD.
type Served = (String, Vec<String>);

/// Group and version in the form of an `APIService`'s name.
fn name_of(group: &str, version: &str) -> String {
    format!("{version}.{group}")
}

impl ApiServices {
    /// Notes what has to be looked at.
    pub(super) fn observe(&self, server: &Server, event: &Event) {
        let key = &event.key;
        let proxied = &server.mounts.proxied;
        match &*key.resource {
            STORAGE => {
                self.registrations.add(key.name.to_string());
                if proxied.get(&key.name).is_some() && spec_changed(event) {
                    self.checks.add(key.name.to_string());
                }
            }
            CRDS => self.observe_crd(&key.name, event.object.as_deref()),
            "/services" | "/endpoints" => {
                proxied.names_of_service(&key.namespace, &key.name).into_iter().for_each(|name| self.checks.add(name));
            }
            "discovery.k8s.io/endpointslices" => {
                let service = event.shown().and_then(|slice| slice.label("kubernetes.io/service-name"));
                let names = service.map(|service| proxied.names_of_service(&key.namespace, service));
                names.into_iter().flatten().for_each(|name| self.checks.add(name));
            }
            _ => {}
        }
    }

    fn observe_crd(&self, name: &Arc<str>, object: Option<&Object>) {
        let mut custom = self.custom.lock();
        let before = custom.remove(name);
        if let Some(object) = object {
            custom.insert(name.clone(), served_by(&object.body.value()));
        }
        let after = custom.get(name);
        if before.as_ref() == after {
            return;
        }
        for (group, versions) in before.iter().chain(after) {
            versions.iter().for_each(|version| self.registrations.add(name_of(group, version)));
        }
    }

    /// The CRDs first, so that what belongs to them is not taken for a remnant.
    fn load(&self, server: &Server) {
        let stored = server.store.list(CRDS, None, None, None, None).map(|page| page.objects).unwrap_or_default();
        stored.iter().for_each(|object| self.observe_crd(&object.key.name, Some(object)));
        self.add_local(server);
    }

    fn add_local(&self, server: &Server) {
        for (group, versions) in server.registry.snapshot().groups() {
            versions.iter().for_each(|version| self.registrations.add(name_of(group, version)));
        }
        for (group, version, _) in server.mounts.listing() {
            self.registrations.add(name_of(&group, &version));
        }
    }

    /// What should stand under a name, if it is for us to say.
    fn desired(&self, server: &Server, name: &str) -> Option<Desired> {
        let (version, group) = name.split_once('.')?;
        let snapshot = server.registry.snapshot();
        let builtin = snapshot.of_group_version(group, version).iter().any(|resource| resource.custom.is_none());
        if builtin {
            let (group_priority, version_priority) = builtin_priority(group, version)?;
            return Some(Desired { label: "onstart", group_priority, version_priority });
        }
        let mut custom = self.custom.lock();
        let custom =
            custom.values_mut().any(|(owner, versions)| owner == group && versions.iter().any(|v| v == version));
        let mounted = || server.mounts.listing().iter().any(|(g, v, _)| g == group && v == version);
        (custom || mounted()).then_some(Desired { label: "true", group_priority: 1000, version_priority: 100 })
    }

    /// Waits before the next try, longer each time.
    fn pause_after_failure(&self, name: &str) -> Duration {
        let mut failures = self.failures.lock();
        let count = failures.entry(name.to_owned()).or_default();
        *count += 1;
        RETRY.saturating_mul(1 << (*count - 1).min(10)).min(PERIOD)
    }
}

/// A new status alone is no reason to ask a server again.
fn spec_changed(event: &Event) -> bool {
    match (&event.previous, &event.object) {
        (Some(before), Some(after)) => before.body.value()["spec"] != after.body.value()["spec"],
        _ => true,
    }
}

fn served_by(crd: &Value) -> Served {
    let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    let served = versions.filter(|version| version["served"] == true).filter_map(|version| version["name"].as_str());
    (crd["spec"]["group"].as_str().unwrap_or_default().to_owned(), served.map(str::to_owned).collect())
}

/// What an `APIService` of ours says.
#[derive(Debug, PartialEq, Eq)]
struct Desired {
    label: &'static str,
    group_priority: i32,
    version_priority: i32,
}

impl Desired {
    fn spec(&self, name: &str) -> Value {
        let (version, group) = name.split_once('.').unwrap_or((name, ""));
        let mut spec = json!({
            "version": version, "groupPriorityMinimum": self.group_priority, "versionPriority": self.version_priority,
        });
        if !group.is_empty() {
            spec["group"] = group.into();
        }
        spec
    }
}

/// Where clients find a built-in group and version among the others; larger comes first.
pub(crate) fn builtin_priority(group: &str, version: &str) -> Option<(i32, i32)> {
    let group_priority = match group {
        "" => return (version == "v1").then_some((18000, 1)),
        "apps" => 17800,
        "events.k8s.io" => 17750,
        "authentication.k8s.io" => 17700,
        "authorization.k8s.io" => 17600,
        "autoscaling" => 17500,
        "batch" => 17400,
        "certificates.k8s.io" => 17300,
        "networking.k8s.io" => 17200,
        "policy" => 17100,
        "rbac.authorization.k8s.io" => 17000,
        "storage.k8s.io" => 16800,
        "apiextensions.k8s.io" | "admissionregistration.k8s.io" => 16700,
        "scheduling.k8s.io" => 16600,
        "coordination.k8s.io" => 16500,
        "node.k8s.io" => 16300,
        "discovery.k8s.io" | "resource.k8s.io" => 16200,
        "flowcontrol.apiserver.k8s.io" => 16100,
        "internal.apiserver.k8s.io" => 16000,
        "storagemigration.k8s.io" => 15800,
        // Among them the group of this very kind, which never has one.
        _ => return None,
    };
    let version_priority = match (group, version) {
        ("autoscaling", "v2") => 30,
        ("flowcontrol.apiserver.k8s.io" | "resource.k8s.io", "v1") => 21,
        (_, "v1") => 15,
        _ => 9,
    };
    Some((group_priority, version_priority))
}

pub(super) async fn run(keeper: Arc<Housekeeper>) {
    keeper.apiservices.load(&keeper.server);
    tokio::join!(register(&keeper), check(&keeper), tick(&keeper));
}

async fn tick(keeper: &Arc<Housekeeper>) {
    loop {
        tokio::time::sleep(PERIOD).await;
        keeper.apiservices.add_local(&keeper.server);
        keeper.server.mounts.proxied.names().into_iter().for_each(|name| keeper.apiservices.checks.add(name));
    }
}

async fn register(keeper: &Arc<Housekeeper>) {
    loop {
        let name = keeper.apiservices.registrations.next().await;
        if let Err(error) = settle(keeper, &name).await {
            tracing::debug!(name, %error, "an APIService is not in order yet");
            let pause = keeper.apiservices.pause_after_failure(&name);
            let later = keeper.clone();
            keeper.spawn(async move {
                tokio::time::sleep(pause).await;
                later.apiservices.registrations.add(name);
            });
        }
    }
}

async fn check(keeper: &Arc<Housekeeper>) {
    loop {
        let name = keeper.apiservices.checks.next().await;
        match examine(keeper, &name).await {
            Ok(true) => {
                keeper.apiservices.failures.lock().remove(&name);
            }
            _ => {
                let pause = keeper.apiservices.pause_after_failure(&name);
                let later = keeper.clone();
                keeper.spawn(async move {
                    tokio::time::sleep(pause).await;
                    later.apiservices.checks.add(name);
                });
            }
        }
    }
}

fn services(server: &Arc<Server>) -> ApiResult<Internal<'_>> {
    server.internal("apiregistration.k8s.io", "v1", "apiservices", "kube-apiserver")
}

/// Makes, changes or removes the object of a local group version, and says that it is available.
async fn settle(keeper: &Arc<Housekeeper>, name: &str) -> ApiResult<()> {
    let (state, server) = (&keeper.apiservices, &keeper.server);
    let services = services(server)?;
    let desired = state.desired(server, name);
    let settled = state.settled.lock().contains(name);
    let once = settled && desired.as_ref().is_some_and(|desired| desired.label == "onstart");
    match (services.get("", name), desired) {
        (None, Some(desired)) if !once => {
            let metadata = json!({"name": name, "labels": {MANAGED: desired.label}});
            services.ensure(json!({"metadata": metadata, "spec": desired.spec(name)})).await?;
        }
        (None, _) => {}
        (Some(current), desired) => {
            let place = Place::new("", name);
            let managed = current["metadata"]["labels"][MANAGED].is_string();
            match desired {
                None if managed => {
                    services.delete(&place, &DeleteOptions::default()).await?;
                    return Ok(());
                }
                Some(desired) if managed && !once && current["spec"] != desired.spec(name) => {
                    services.change(&place, "", |object| object["spec"] = desired.spec(name)).await?;
                }
                _ => {}
            }
            if !current["spec"]["service"].is_object() {
                report(&services, server, name, &current, local()).await?;
            }
        }
    }
    state.settled.lock().insert(name.to_owned());
    state.failures.lock().remove(name);
    Ok(())
}

fn local() -> Value {
    condition("True", "Local", "Local APIServices are always available")
}

fn condition(status: &str, reason: &str, message: &str) -> Value {
    json!({"type": "Available", "status": status, "reason": reason, "message": message})
}

/// Writes the condition if it says something new.
async fn report(services: &Internal<'_>, server: &Server, name: &str, current: &Value, found: Value) -> ApiResult<()> {
    let now = format_time(server.environment.now());
    let mut status = current["status"].clone();
    set_condition(&mut status, found.clone(), &now);
    if status == current["status"] {
        return Ok(());
    }
    let place = Place::new("", name);
    services.change(&place, "status", |object| set_condition(&mut object["status"], found.clone(), &now)).await?;
    Ok(())
}

/// Finds out whether an extension server works; `false` asks for another try soon.
async fn examine(keeper: &Arc<Housekeeper>, name: &str) -> ApiResult<bool> {
    let server = &keeper.server;
    let Some(remote) = server.mounts.proxied.get(name) else { return Ok(true) };
    let services = services(server)?;
    let Some(current) = services.get("", name) else { return Ok(true) };
    let (mut again, mut found) = (false, condition("True", "Passed", "all checks passed"));
    if let Err((reason, message)) = look_at_endpoints(server, &current["spec"]["service"]) {
        remote.forget_discovery();
        found = condition("False", reason, &message);
    } else if let Err(message) = remote.check(server).await {
        again = true;
        found = condition("False", "FailedDiscoveryCheck", &message);
    }
    match report(&services, server, name, &current, found).await {
        Err(error) if error.code() != http::StatusCode::NOT_FOUND => Err(error),
        _ => Ok(!again),
    }
}

/// What can be seen without asking: reason and message of what is missing.
fn look_at_endpoints(server: &Server, reference: &Value) -> Result<(), (&'static str, String)> {
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let (namespace, name) = (text("namespace"), text("name"));
    let port = reference["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or(443);
    judge(Backends::read(&server.store, namespace, name).as_ref(), namespace, name, port)
}

fn judge(backends: Option<&Backends>, namespace: &str, name: &str, port: u16) -> Result<(), (&'static str, String)> {
    let service = format!("service/{name} in \"{namespace}\"");
    let Some(backends) = backends else { return Err(("ServiceNotFound", format!("{service} is not present"))) };
    if backends.service["spec"]["type"].as_str().is_some_and(|kind| kind != "ClusterIP") {
        return Ok(());
    }
    let Some(port_name) = backends.port_name(port) else {
        return Err(("ServicePortError", format!("{service} is not listening on port {port}")));
    };
    if backends.slices.is_empty() && backends.endpoints.is_none() {
        return Err(("EndpointsNotFound", format!("cannot find endpointslices for {service}")));
    }
    if backends.ready(port_name).is_empty() {
        let why = format!("endpointslices for {service} have no addresses with port name \"{port_name}\"");
        return Err(("MissingEndpoints", why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_behind_a_service_has_a_name() {
        let reason = |backends: Option<Backends>| judge(backends.as_ref(), "ns", "api", 443).err();
        let backends = |port: u16, slices: Vec<Value>| {
            let service = json!({"spec": {"type": "ClusterIP", "ports": [{"name": "https", "port": port}]}});
            Some(Backends { service, slices, endpoints: None })
        };
        let slice = |ready: bool| {
            json!({
                "addressType": "IPv4", "ports": [{"name": "https", "port": 1}],
                "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}],
            })
        };
        let service = "service/api in \"ns\"";
        assert_eq!(reason(None), Some(("ServiceNotFound", format!("{service} is not present"))));
        let port = ("ServicePortError", format!("{service} is not listening on port 443"));
        assert_eq!(reason(backends(1, vec![])), Some(port));
        let none = ("EndpointsNotFound", format!("cannot find endpointslices for {service}"));
        assert_eq!(reason(backends(443, vec![])), Some(none));
        let missing = format!("endpointslices for {service} have no addresses with port name \"https\"");
        assert_eq!(reason(backends(443, vec![slice(false)])), Some(("MissingEndpoints", missing)));
        assert_eq!(reason(backends(443, vec![slice(true)])), None);
    }

    #[test]
    fn priorities_are_those_of_kubernetes() {
        assert_eq!(builtin_priority("", "v1"), Some((18000, 1)));
        assert_eq!(builtin_priority("apps", "v1"), Some((17800, 15)));
        assert_eq!(builtin_priority("autoscaling", "v2"), Some((17500, 30)));
        assert_eq!(builtin_priority("apiregistration.k8s.io", "v1"), None);
    }

    #[test]
    fn retries_wait_longer_each_time() {
        let state = ApiServices::default();
        assert_eq!(state.pause_after_failure("a"), RETRY);
        assert_eq!(state.pause_after_failure("a"), RETRY * 2);
        for _ in 0..20 {
            state.pause_after_failure("a");
        }
        assert_eq!(state.pause_after_failure("a"), PERIOD);
        assert_eq!(state.pause_after_failure("b"), RETRY);
    }
}
