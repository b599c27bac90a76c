//! `subresources.kubevirt.io`: what can be done to a virtual machine and to its guest.
//!
//! A request is parsed into a [`Target`] and its caller's right to it is checked. Wishes about a virtual machine become changes of
//! objects ([`power`]). Those about a guest are checked against its state ([`preconditions`]) and passed on: to the virt-handler of
//! its node, or, for port forwarding, to the address of its pod.

mod evacuation;
mod expand;
mod machine;
pub mod options;
mod portforward;
pub mod power;
#[cfg(test)]
mod power_tests;
mod preconditions;
mod wanted;

pub(crate) use self::wanted::resources;

use std::sync::Arc;

use ferrovirt_api::names::groups;
use ferrovirt_api::{VirtualMachineInstance, decode};
use ferrovirt_apiserver::auth::Attributes;
use ferrovirt_apiserver::auth::rbac::forbidden_message;
use ferrovirt_apiserver::http::body::{self, RequestBody};
use ferrovirt_apiserver::http::info::{RequestInfo, ResourcePath};
use ferrovirt_apiserver::http::negotiate::Output;
use ferrovirt_apiserver::http::respond::{self, Answer};
use ferrovirt_apiserver::identity;
use ferrovirt_apiserver::mounts::Mount;
use ferrovirt_apiserver::server::{Call, Server};
use ferrovirt_apiserver::status::{ApiError, ApiResult, Subject};
use ferrovirt_launcher_rpc::messages::{AgentFilesystem, AgentReport, AgentUser};
use futures::future::BoxFuture;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::machine::{MACHINE, Machine};
use self::options::{CancelOptions, CommandOptions, FreezeOptions};
use self::wanted::{Command, MachineWanted, Port, Target, Wanted};
use crate::cluster::{Cluster, InProcess, Kind, Object, lost_race};
use crate::guest_agent;
use crate::handlers::{Guest, HandlerError, Handlers};
use crate::websocket::{Asked, Farewell};

/// The served versions; they are the same.
pub const VERSIONS: [&str; 2] = ["v1", "v1alpha3"];

/// Told to a client whose stream ends on the guest's side: the node only sees that it ended.
const STREAM_ENDED: Farewell = Farewell::cut_off("the stream ended: another client took it over, or the guest ended");
const VIEW_ENDED: Farewell = Farewell::regular("there is no more to see");
const CONNECTION_ENDED: Farewell = Farewell::regular("the guest closed the connection");

/// How errors about a guest name it.
pub(crate) const GUEST: Subject<'static> = Subject { group: groups::KUBEVIRT, resource: "virtualmachineinstance" };

/// Serves the group.
pub struct Subresources {
    handlers: Arc<dyn Handlers>,
}

impl Subresources {
    /// With a way to the virt-handlers.
    pub fn new(handlers: Arc<dyn Handlers>) -> Self {
        Self { handlers }
    }

    /// Answers a request whose caller is known.
    pub(crate) async fn answer(&self, cluster: &dyn Cluster, call: Call, body: RequestBody) -> ApiResult<Answer> {
        let path = call.path()?.clone();
        let target = wanted::parse(&call.method, &path)?;
        match target {
            Target::Version | Target::Health | Target::GuestFs => return anybodys(&target),
            _ => authorize(cluster, &call, &path).await?,
        }
        let machine = Machine { cluster, namespace: &path.namespace, name: &path.name };
        match target {
            Target::Machine(MachineWanted::Power(power)) => machine.power(power, &body::read(body).await?).await,
            Target::Machine(MachineWanted::Expanded) => expanded(cluster, &path).await,
            Target::Machine(MachineWanted::PortForward(port)) => {
                let vmi = machine.own_guest().await?;
                preconditions::check(&Wanted::PortForward(port), &vmi)?;
                forward(cluster, &vmi, port, call).await
            }
            Target::Machine(MachineWanted::CancelEvacuation) => {
                let vmi = machine.own_guest().await?;
                cancel_evacuation(cluster, &vmi, &body::read(body).await?).await
            }
            Target::Guest(Wanted::CancelEvacuation) => {
                let vmi = find_guest(cluster, &path.namespace, &path.name).await?;
                cancel_evacuation(cluster, &vmi, &body::read(body).await?).await
            }
            Target::Guest(wanted) => {
                if wanted == Wanted::Command(Command::Unpause) {
                    preconditions::check_machine(machine.read().await?.as_ref())?;
                }
                let vmi = find_guest(cluster, &path.namespace, &path.name).await?;
                preconditions::check(&wanted, &vmi)?;
                self.guest(cluster, wanted, &vmi, call, body).await
            }
            Target::Expand => Ok(object(&expand::expand_given(&body::read(body).await?, &path.namespace)?)),
            Target::NotYet(kind, instead) => Err(not_yet(cluster, kind, &path, instead).await),
            Target::Version | Target::Health | Target::GuestFs => anybodys(&target),
        }
    }

    /// Does something to a guest whose state allows it.
    async fn guest(
        &self,
        cluster: &dyn Cluster,
        wanted: Wanted,
        vmi: &VirtualMachineInstance,
        mut call: Call,
        body: RequestBody,
    ) -> ApiResult<Answer> {
        let name = vmi.metadata.name.as_deref().unwrap_or_default();
        let node = vmi.status.as_ref().and_then(|status| status.node_name.as_deref()).unwrap_or_default();
        let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
        let guest = Guest { handlers: &*self.handlers, node, namespace, name };
        match wanted {
            Wanted::Stream(stream) => {
                wanted::refuse_options(&call.query, &["preserveSession"])?;
                let stream = wanted::stream_path(stream, &call.query)?;
                // Whoever only looks takes the stream from nobody, and nobody takes it from them.
                let ended = if stream.contains('?') { VIEW_ENDED } else { STREAM_ENDED };
                let client = Asked::parse(&mut call)?;
                let stream = guest.stream(&stream).await.map_err(|error| failure(name, &error))?;
                client.join(stream, ended)
            }
            Wanted::PortForward(port) => forward(cluster, vmi, port, call).await,
            Wanted::Screenshot => {
                wanted::refuse_options(&call.query, &["moveCursor"])?;
                screenshot(&guest).await
            }
            Wanted::Command(command) => self::command(&guest, command, &body::read(body).await?).await,
            Wanted::CancelEvacuation => cancel_evacuation(cluster, vmi, &body::read(body).await?).await,
            Wanted::GuestInfo => guest_info(&guest).await,
            Wanted::Users => Ok(object(&guest_agent::user_list(&read::<Vec<AgentUser>>(&guest, "userlist").await?))),
            Wanted::Filesystems => {
                let filesystems: Vec<AgentFilesystem> = read(&guest, "filesystemlist").await?;
                Ok(object(&guest_agent::filesystem_list(&filesystems)))
            }
        }
    }
}

impl Mount for Subresources {
    fn resources(&self) -> Vec<Value> {
        resources()
    }

    fn serve<'a>(&'a self, server: &'a Arc<Server>, call: Call, body: RequestBody) -> BoxFuture<'a, ApiResult<Answer>> {
        Box::pin(async move { self.answer(&InProcess { server }, call, body).await })
    }
}

/// What needs no right.
fn anybodys(target: &Target) -> ApiResult<Answer> {
    match target {
        Target::Version => Ok(object(&version())),
        Target::Health => Ok(object(&health())),
        _ => Err(no_guestfs()),
    }
}

/// What anybody gets at a path without saying who it is; `None` where that is needed.
pub(crate) fn open(path: &str) -> Option<ApiResult<Answer>> {
    let info = RequestInfo::parse(&Method::GET, path, &[]);
    let resource = info.resource.as_ref().filter(|_| is_ours(&info))?;
    let target = wanted::parse(&Method::GET, resource).ok()?;
    matches!(target, Target::Version | Target::Health | Target::GuestFs).then(|| anybodys(&target))
}

/// Whether a request is about a resource that is served here.
pub(crate) fn is_ours(info: &RequestInfo) -> bool {
    let resource = info.resource.as_ref();
    resource.is_some_and(|path| path.group == groups::SUBRESOURCES && VERSIONS.contains(&path.version.as_str()))
}

/// Refuses callers without the right to exactly this subresource of exactly this object. The API server in front looks at the
/// first word below the name only, so `vnc/screenshot` is decided here.
async fn authorize(cluster: &dyn Cluster, call: &Call, path: &ResourcePath) -> ApiResult<()> {
    let attributes = Attributes { subresource: wanted::below_name(path), ..identity::attributes(&call.info) };
    let decision = cluster.decide(&call.user, &attributes).await?;
    if decision.allowed {
        return Ok(());
    }
    let message = forbidden_message(&call.user, &attributes, &decision.reason);
    let subject = Subject { group: &attributes.group, resource: &attributes.resource };
    Err(ApiError::new(StatusCode::FORBIDDEN, "Forbidden", message).with_subject(subject, &attributes.name))
}

async fn find_guest(cluster: &dyn Cluster, namespace: &str, name: &str) -> ApiResult<VirtualMachineInstance> {
    let value = cluster.get(Object { kind: Kind::Guest, namespace, name }).await?;
    decode(&value.ok_or_else(|| ApiError::not_found(GUEST, name))?).map_err(ApiError::internal)
}

/// The machine with what it refers to; shown as it is stored, not as this version knows it.
async fn expanded(cluster: &dyn Cluster, path: &ResourcePath) -> ApiResult<Answer> {
    let machine = Object { kind: Kind::Machine, namespace: &path.namespace, name: &path.name };
    let vm = cluster.get(machine).await?.ok_or_else(|| ApiError::not_found(MACHINE, &path.name))?;
    expand::check(&vm).map_err(ApiError::internal)?;
    Ok(object(&vm))
}

async fn forward(cluster: &dyn Cluster, vmi: &VirtualMachineInstance, port: Port, mut call: Call) -> ApiResult<Answer> {
    let address = portforward::address(cluster, vmi).await?;
    let client = Asked::parse(&mut call)?;
    portforward::connect(client, address, port, CONNECTION_ENDED).await
}

async fn cancel_evacuation(cluster: &dyn Cluster, vmi: &VirtualMachineInstance, body: &[u8]) -> ApiResult<Answer> {
    let options: CancelOptions = options::parse(body, &["evacuationNodeName", "dryRun"])?;
    let dry_run = options::is_dry_run(&options.dry_run)?;
    let configuration = cluster.configuration();
    let taint = configuration.migrations.as_ref().and_then(|migrations| migrations.node_drain_taint_key.as_deref());
    if let Some(taint) = taint {
        let name = evacuation::node(vmi);
        let node = cluster.get(Object { kind: Kind::Node, namespace: "", name }).await?;
        if node.is_some_and(|node| evacuation::is_drained(&node, taint)) {
            let why = format!("Node \"{name}\" has NodeDrainTaintKey \"{taint}:NoSchedule\"");
            return Err(ApiError::bad_request(why));
        }
    }
    if let Some(operations) = evacuation::decide_cancel(vmi, &options) {
        let name = vmi.metadata.name.as_deref().unwrap_or_default();
        let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
        let guest = Object { kind: Kind::Guest, namespace, name };
        let patched = cluster.patch(guest, "", &operations, dry_run).await;
        patched.map_err(|error| match lost_race(&error) {
            true => ApiError::conflict(GUEST, name, "it is not marked to leave that node"),
            false => error,
        })?;
    }
    Ok(respond::bytes(StatusCode::OK, "application/json", ""))
}

/// 404 when there is no such object, and otherwise why nothing happens. KubeVirt answers 400 too where a feature is off.
async fn not_yet(cluster: &dyn Cluster, kind: Kind, path: &ResourcePath, instead: &str) -> ApiError {
    let subject = if kind == Kind::Machine { MACHINE } else { GUEST };
    match cluster.get(Object { kind, namespace: &path.namespace, name: &path.name }).await {
        Ok(Some(_)) => ApiError::bad_request(format!("{} is not supported yet: {instead}", wanted::below_name(path))),
        Ok(None) => ApiError::not_found(subject, &path.name),
        Err(error) => error,
    }
}

fn no_guestfs() -> ApiError {
    let why = "this cluster has no image with libguestfs: name one, for example with virtctl guestfs --image";
    ApiError::new(StatusCode::NOT_FOUND, "NotFound", why)
}

async fn command(guest: &Guest<'_>, command: Command, body: &[u8]) -> ApiResult<Answer> {
    let (asked, dry_run) = if command == Command::Freeze {
        let options: FreezeOptions = options::parse(body, &["unfreezeTimeout", "dryRun"])?;
        (Some(json!({"unfreezeTimeoutSeconds": options.seconds()})), options.dry_run)
    } else {
        let options: CommandOptions = options::parse(body, &["dryRun"])?;
        (None, options.dry_run)
    };
    if !options::is_dry_run(&dry_run)? {
        let told = guest.ask(Method::PUT, command.as_str(), asked.as_ref()).await;
        told.map_err(|error| failure(guest.name, &error))?;
    }
    Ok(respond::bytes(StatusCode::OK, "application/json", ""))
}

async fn screenshot(guest: &Guest<'_>) -> ApiResult<Answer> {
    let told = guest.ask(Method::GET, "vnc/screenshot", None).await.map_err(|error| failure(guest.name, &error))?;
    let mut answer = respond::bytes(StatusCode::OK, "image/png", told.body);
    // The node names the format. Whatever it says, a browser must not take a guest's pixels for a page.
    if let Some(kind) = told.content_type.filter(|kind| kind.as_bytes().starts_with(b"image/")) {
        answer.headers_mut().insert(CONTENT_TYPE, kind);
    }
    answer.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    Ok(answer)
}

async fn guest_info(guest: &Guest<'_>) -> ApiResult<Answer> {
    let report: AgentReport = read(guest, "guestosinfo").await?;
    let users: Vec<AgentUser> = read(guest, "userlist").await?;
    let filesystems: Vec<AgentFilesystem> = read(guest, "filesystemlist").await?;
    Ok(object(&guest_agent::info(&report, &users, &filesystems)))
}

async fn read<T: DeserializeOwned>(guest: &Guest<'_>, wanted: &str) -> ApiResult<T> {
    let told = guest.ask(Method::GET, wanted, None).await.map_err(|error| failure(guest.name, &error))?;
    serde_json::from_slice(&told.body)
        .map_err(|error| ApiError::internal(format!("virt-handler's answer about {wanted}: {error}")))
}

/// What a virt-handler's refusal is to a user.
fn failure(name: &str, error: &HandlerError) -> ApiError {
    match error {
        HandlerError::Unreachable { .. } | HandlerError::Silent { .. } => ApiError::unavailable(error.to_string()),
        // The guest moved or ended between our look at it and the question.
        HandlerError::Refused { code: StatusCode::NOT_FOUND | StatusCode::CONFLICT, message } => {
            ApiError::conflict(GUEST, name, message)
        }
        HandlerError::Refused { code: StatusCode::SERVICE_UNAVAILABLE, message } => {
            ApiError::unavailable(message.clone())
        }
        HandlerError::Refused { .. } | HandlerError::Broken { .. } => ApiError::internal(error),
    }
}

fn object(value: &Value) -> Answer {
    respond::object(StatusCode::OK, &Output::JSON, value)
}

/// As KubeVirt says it.
pub(crate) fn health() -> Value {
    json!({"apiserver": {"connectivity": "ok"}})
}

/// The API's version first, because clients compare theirs with it; ours behind the plus.
pub(crate) fn version() -> Value {
    let version = concat!("v1.9.0+ferrovirt.", env!("CARGO_PKG_VERSION"));
    let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
    json!({
        "gitVersion": version, "gitCommit": "", "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "rustc",
        "platform": platform,
    })
}
