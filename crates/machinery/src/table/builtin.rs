//! Columns and rows of the built-in kinds: one line for each kind, one small function for each row.

mod cluster;
mod core;
mod network;
mod pod;
mod storage;
mod workload;

use jiff::Timestamp;
use serde_json::Value;

use super::columns::Column;
use super::duration::since;
use crate::selector::LabelSelector;

pub(super) use pod::conditions as pod_conditions;

/// Makes the cells of one object.
pub(super) type Row = fn(&Value, Timestamp) -> Vec<Value>;

/// The row of pods, the only kind whose rows have conditions.
pub(super) const POD_ROW: Row = pod::pod;

/// Group, kind, columns, row. A column is a name, `*` if it is for `-o wide`, and `:type` if it is not a string.
const KINDS: &[(&str, &str, &str, Row)] = &[
    ("", "Pod", "Name,Ready,Status,Restarts,Age,IP*,Node*,Nominated Node*,Readiness Gates*", POD_ROW),
    ("", "PodTemplate", "Name,Containers,Images,Pod Labels", core::pod_template),
    ("", "Service", "Name,Type,Cluster-IP,External-IP,Port(s),Age,Selector*", network::service),
    ("", "Endpoints", "Name,Endpoints,Age", network::endpoints),
    ("", "Node", NODE, core::node),
    ("", "Event", EVENT, core::event),
    ("events.k8s.io", "Event", EVENT, core::event),
    ("", "Namespace", "Name,Status,Age", core::namespace),
    ("", "Secret", "Name,Type,Data,Age", core::secret),
    ("", "ConfigMap", "Name,Data,Age", core::config_map),
    ("", "ServiceAccount", "Name,Age", core::name_and_age),
    ("", "ReplicationController", REPLICAS, workload::replication_controller),
    ("", "ResourceQuota", "Name,Request,Limit,Age", core::resource_quota),
    ("", "PersistentVolume", PERSISTENT_VOLUME, storage::persistent_volume),
    ("", "PersistentVolumeClaim", PERSISTENT_VOLUME_CLAIM, storage::persistent_volume_claim),
    ("", "ComponentStatus", "Name,Status,Message,Error", core::component_status),
    ("apps", "Deployment", "Name,Ready,Up-to-date,Available,Age,Containers*,Images*,Selector*", workload::deployment),
    ("apps", "ReplicaSet", REPLICAS, workload::replica_set),
    ("apps", "StatefulSet", "Name,Ready,Age,Containers*,Images*", workload::stateful_set),
    ("apps", "DaemonSet", DAEMON_SET, workload::daemon_set),
    ("apps", "ControllerRevision", "Name,Controller,Revision,Age", workload::controller_revision),
    ("batch", "Job", "Name,Status,Completions,Duration,Age,Containers*,Images*,Selector*", workload::job),
    ("batch", "CronJob", CRON_JOB, workload::cron_job),
    ("autoscaling", "HorizontalPodAutoscaler", AUTOSCALER, workload::autoscaler),
    ("autoscaling", "Scale", "Name,Desired:integer,Available:integer,Age", workload::scale),
    ("policy", "PodDisruptionBudget", DISRUPTION_BUDGET, workload::disruption_budget),
    ("networking.k8s.io", "Ingress", "Name,Class,Hosts,Address,Ports,Age", network::ingress),
    ("networking.k8s.io", "IngressClass", "Name,Controller,Parameters,Age", network::ingress_class),
    ("networking.k8s.io", "NetworkPolicy", "Name,Pod-Selector,Age", network::network_policy),
    ("networking.k8s.io", "ServiceCIDR", "Name,CIDRs,Age", network::service_cidr),
    ("networking.k8s.io", "IPAddress", "Name,ParentRef", network::ip_address),
    ("discovery.k8s.io", "EndpointSlice", "Name,AddressType,Ports,Endpoints,Age", network::endpoint_slice),
    ("storage.k8s.io", "StorageClass", STORAGE_CLASS, storage::storage_class),
    ("storage.k8s.io", "VolumeAttachment", "Name,Attacher,PV,Node,Attached:boolean,Age", storage::volume_attachment),
    ("storage.k8s.io", "VolumeAttributesClass", "Name,DriverName,Age", storage::volume_attributes_class),
    ("storage.k8s.io", "CSINode", "Name,Drivers:integer,Age", storage::csi_node),
    ("storage.k8s.io", "CSIDriver", CSI_DRIVER, storage::csi_driver),
    ("rbac.authorization.k8s.io", "RoleBinding", BINDING, cluster::binding),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", BINDING, cluster::binding),
    ("certificates.k8s.io", "CertificateSigningRequest", SIGNING_REQUEST, cluster::signing_request),
    ("certificates.k8s.io", "ClusterTrustBundle", "Name,SignerName", cluster::trust_bundle),
    ("coordination.k8s.io", "Lease", "Name,Holder,Age", cluster::lease),
    ("scheduling.k8s.io", "PriorityClass", PRIORITY_CLASS, cluster::priority_class),
    ("node.k8s.io", "RuntimeClass", "Name,Handler,Age", cluster::runtime_class),
    ("apiregistration.k8s.io", "APIService", "Name,Service,Available,Age", cluster::api_service),
    (ADMISSION, "MutatingWebhookConfiguration", "Name,Webhooks:integer,Age", cluster::webhooks),
    (ADMISSION, "ValidatingWebhookConfiguration", "Name,Webhooks:integer,Age", cluster::webhooks),
    (ADMISSION, "ValidatingAdmissionPolicy", "Name,Validations:integer,ParamKind,Age", cluster::validating_policy),
    (ADMISSION, "MutatingAdmissionPolicy", "Name,Mutations:integer,ParamKind,Age", cluster::mutating_policy),
    (ADMISSION, "ValidatingAdmissionPolicyBinding", "Name,PolicyName,ParamRef,Age", cluster::policy_binding),
    (ADMISSION, "MutatingAdmissionPolicyBinding", "Name,PolicyName,ParamRef,Age", cluster::policy_binding),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema", FLOW_SCHEMA, cluster::flow_schema),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration", PRIORITY_LEVEL, cluster::priority_level),
];

const ADMISSION: &str = "admissionregistration.k8s.io";
const NODE: &str =
    "Name,Status,Roles,Age,Version,Internal-IP*,External-IP*,OS-Image*,Kernel-Version*,Container-Runtime*";
const EVENT: &str = "Last Seen,Type,Reason,Object,Subobject*,Source*,Message,First Seen*,Count*,Name*";
const REPLICAS: &str = "Name,Desired:integer,Current:integer,Ready:integer,Age,Containers*,Images*,Selector*";
const DAEMON_SET: &str = "Name,Desired:integer,Current:integer,Ready:integer,Up-to-date:integer,Available:integer,\
    Node Selector,Age,Containers*,Images*,Selector*";
const CRON_JOB: &str =
    "Name,Schedule,Timezone,Suspend:boolean,Active:integer,Last Schedule,Age,Containers*,Images*,Selector*";
const AUTOSCALER: &str = "Name,Reference,Targets,MinPods,MaxPods,Replicas,Age";
const DISRUPTION_BUDGET: &str = "Name,Min Available,Max Unavailable,Allowed Disruptions:integer,Age";
const PERSISTENT_VOLUME: &str = "Name,Capacity,Access Modes,Reclaim Policy,Status,Claim,StorageClass,\
    VolumeAttributesClass,Reason,Age,VolumeMode*";
const PERSISTENT_VOLUME_CLAIM: &str =
    "Name,Status,Volume,Capacity,Access Modes,StorageClass,VolumeAttributesClass,Age,VolumeMode*";
const STORAGE_CLASS: &str = "Name,Provisioner,ReclaimPolicy,VolumeBindingMode,AllowVolumeExpansion,Age";
const CSI_DRIVER: &str = "Name,AttachRequired:boolean,PodInfoOnMount:boolean,StorageCapacity:boolean,TokenRequests,\
    RequiresRepublish:boolean,Modes,Age";
const BINDING: &str = "Name,Role,Age,Users*,Groups*,ServiceAccounts*";
const SIGNING_REQUEST: &str = "Name,Age,SignerName,Requestor,RequestedDuration,Condition";
const PRIORITY_CLASS: &str = "Name,Value:integer,Global-Default:boolean,Age,PreemptionPolicy";
const FLOW_SCHEMA: &str = "Name,PriorityLevel,MatchingPrecedence,DistinguisherMethod,Age,MissingPL";
const PRIORITY_LEVEL: &str = "Name,Type,NominalConcurrencyShares,Queues,HandSize,QueueLengthLimit,Age";

/// The columns and the row of a kind.
pub(super) fn find(group: &str, kind: &str) -> Option<(Vec<Column>, Row)> {
    let (_, _, columns, row) = KINDS.iter().find(|entry| (entry.0, entry.1) == (group, kind))?;
    Some((columns.split(',').map(column).collect(), *row))
}

/// A column from its entry in the table.
pub(super) fn column(entry: &str) -> Column {
    let (name, kind) = entry.split_once(':').unwrap_or((entry, "string"));
    let (name, wide) = name.strip_suffix('*').map_or((name, false), |name| (name, true));
    let format = if matches!(name, "Name" | "Attacher") { "name" } else { "" };
    Column {
        name: name.to_owned(),
        kind: kind.to_owned(),
        format: format.to_owned(),
        description: describe(name),
        priority: i64::from(wide),
    }
}

fn describe(name: &str) -> String {
    match name {
        "Name" => "The name of the object, unique among its kind in its namespace.".to_owned(),
        "Age" => "The time since the object was created.".to_owned(),
        "Created At" => "The time at which the object was created.".to_owned(),
        "Containers" => "The names of the containers.".to_owned(),
        "Images" => "The images of the containers.".to_owned(),
        "Ready" => "How many are ready.".to_owned(),
        "Restarts" => "How often containers restarted, and when they last did.".to_owned(),
        other => format!("{other} of the object."),
    }
}

#[cfg(test)]
pub(super) fn kinds() -> impl Iterator<Item = (&'static str, &'static str)> {
    KINDS.iter().map(|(group, kind, ..)| (*group, *kind))
}

// What most rows need. A pointer (`/spec/nodeName`) that leads nowhere finds "", 0 or an empty list.

fn text<'o>(object: &'o Value, pointer: &str) -> &'o str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn text_or<'o>(object: &'o Value, pointer: &str, default: &'o str) -> &'o str {
    match text(object, pointer) {
        "" => default,
        found => found,
    }
}

fn int(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

fn flag(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer).and_then(Value::as_bool).unwrap_or(false)
}

fn list<'o>(object: &'o Value, pointer: &str) -> &'o [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn entries(object: &Value, pointer: &str) -> usize {
    object.pointer(pointer).and_then(Value::as_object).map_or(0, serde_json::Map::len)
}

fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

fn age(object: &Value, now: Timestamp) -> String {
    since(&object["metadata"]["creationTimestamp"], now)
}

fn is_deleting(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

/// The condition of a type.
fn condition<'o>(object: &'o Value, kind: &str) -> Option<&'o Value> {
    list(object, "/status/conditions").iter().find(|condition| condition["type"] == kind)
}

fn has_condition(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["status"] == "True")
}

/// A number or a text, as it stands.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// `a=1,b=2` or `<none>`.
fn labels(object: &Value, pointer: &str) -> String {
    let map = object.pointer(pointer).and_then(Value::as_object);
    let mut pairs: Vec<String> =
        map.into_iter().flatten().map(|(key, value)| format!("{key}={}", plain(value))).collect();
    pairs.sort();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

/// A `LabelSelector` object as text.
fn selector(object: &Value, pointer: &str) -> String {
    match LabelSelector::from_object(object.pointer(pointer).unwrap_or(&Value::Null)) {
        Ok(selector) => match selector.to_string() {
            text if text.is_empty() => "<none>".to_owned(),
            text => text,
        },
        Err(_) => "<error>".to_owned(),
    }
}

/// One field of every element, with commas.
fn joined(elements: &[Value], field: &str) -> String {
    let texts: Vec<&str> = elements.iter().map(|element| element[field].as_str().unwrap_or_default()).collect();
    texts.join(",")
}

/// Names and images of the containers of a pod template.
fn containers(object: &Value, pointer: &str) -> [Value; 2] {
    let containers = list(object, pointer);
    [joined(containers, "name").into(), joined(containers, "image").into()]
}

/// At most three, then how many there are besides.
fn shortened(items: &[String]) -> String {
    match items {
        [] => "<unset>".to_owned(),
        items if items.len() > 3 => format!("{} + {} more...", items[..3].join(","), items.len() - 3),
        items => items.join(","),
    }
}

/// `row![a, b]`: cells from anything that is JSON.
macro_rules! row {
    ($($cell:expr),* $(,)?) => { vec![$(serde_json::Value::from($cell)),*] };
}
use row;
