//! `subresources.kubevirt.io`: what can be done to a guest that runs.
//!
//! A request is parsed into a [`Wanted`], checked against the guest's state ([`preconditions`]) and passed on: to the virt-handler
//! of the guest's node, or, for port forwarding, to the address of its pod.

mod portforward;
mod preconditions;
mod wanted;

use std::sync::Arc;

use ferrovirt_api::names::groups;
use ferrovirt_api::{VirtualMachineInstance, decode};
use ferrovirt_apiserver::http::body::{self, RequestBody};
use ferrovirt_apiserver::http::negotiate::Output;
use ferrovirt_apiserver::http::respond::{self, Answer};
use ferrovirt_apiserver::mounts::Mount;
use ferrovirt_apiserver::server::{Call, Server};
use ferrovirt_apiserver::status::{ApiError, ApiResult, Subject};
use ferrovirt_launcher_rpc::messages::{AgentFilesystem, AgentReport, AgentUser};
use futures::future::BoxFuture;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::wanted::{Command, Target, Wanted};
use crate::guest_agent;
use crate::handlers::{Guest, HandlerError, Handlers};
use crate::websocket::Asked;

/// The served versions; they are the same.
pub const VERSIONS: [&str; 2] = ["v1", "v1alpha3"];

/// Told to a client whose stream ends on the guest's side: the node only sees that it ended.
const STREAM_ENDED: &str = "the stream ended: another client took it over, or the guest ended";
const CONNECTION_ENDED: &str = "the guest closed the connection";

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

    async fn answer(&self, server: &Arc<Server>, mut call: Call, body: RequestBody) -> ApiResult<Answer> {
        let path = call.path()?.clone();
        let wanted = match wanted::parse(&call.method, &path)? {
            Target::Version => return Ok(object(&version())),
            Target::Health => return Ok(object(&json!({"apiserver": {"connectivity": "ok"}}))),
            Target::Guest(wanted) => wanted,
        };
        let vmi = find(server, &path.namespace, &path.name)?;
        preconditions::check(&wanted, &vmi)?;
        let node = vmi.status.as_ref().and_then(|status| status.node_name.as_deref()).unwrap_or_default();
        let guest = Guest { handlers: &*self.handlers, node, namespace: &path.namespace, name: &path.name };
        match wanted {
            Wanted::Stream(stream) => {
                wanted::refuse_options(&call.query, &["preserveSession"])?;
                let client = Asked::parse(&mut call)?;
                let stream = guest.stream(stream.as_str()).await.map_err(|error| failure(&path.name, &error))?;
                client.join(stream, STREAM_ENDED)
            }
            Wanted::PortForward(port) => {
                let address = portforward::address(server, &vmi)?;
                let client = Asked::parse(&mut call)?;
                portforward::connect(client, address, port, CONNECTION_ENDED).await
            }
            Wanted::Screenshot => {
                wanted::refuse_options(&call.query, &["moveCursor"])?;
                screenshot(&guest).await
            }
            Wanted::Command(command) => self::command(&guest, command, &body::read(body).await?).await,
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
        wanted::resources()
    }

    fn serve<'a>(&'a self, server: &'a Arc<Server>, call: Call, body: RequestBody) -> BoxFuture<'a, ApiResult<Answer>> {
        Box::pin(self.answer(server, call, body))
    }
}

fn find(server: &Arc<Server>, namespace: &str, name: &str) -> ApiResult<VirtualMachineInstance> {
    let guests = server.internal(groups::KUBEVIRT, "v1", "virtualmachineinstances", "virt-api")?;
    let value = guests.get(namespace, name).ok_or_else(|| ApiError::not_found(GUEST, name))?;
    decode(&value).map_err(ApiError::internal)
}

async fn command(guest: &Guest<'_>, command: Command, body: &[u8]) -> ApiResult<Answer> {
    let options = wanted::options(body)?;
    let asked = match command {
        Command::Freeze => Some(json!({"unfreezeTimeoutSeconds": wanted::unfreeze_timeout(&options)?})),
        _ => None,
    };
    if !wanted::is_dry_run(&options)? {
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

/// The API's version first, because clients compare theirs with it; ours behind the plus.
fn version() -> Value {
    let version = concat!("v1.9.0+ferrovirt.", env!("CARGO_PKG_VERSION"));
    let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
    json!({
        "gitVersion": version, "gitCommit": "", "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "rustc",
        "platform": platform,
    })
}
