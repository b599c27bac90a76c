//! What the fuzz targets share: inputs with several parts, documents that are almost right, schemas, and a server in
//! memory.

mod documents;

pub use documents::{Source, WORDS};

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use ferrovirt_apiserver::auth::UserInfo;
use ferrovirt_apiserver::cluster;
use ferrovirt_apiserver::http::body::RequestBody;
use ferrovirt_apiserver::server::{Machine, Peer, Server};
use ferrovirt_machinery::builtin;
use ferrovirt_machinery::schema::Schema;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

/// The parts of an input, which a line of dashes separates: seeds stay readable.
pub fn parts<const N: usize>(input: &[u8]) -> Option<[&str; N]> {
    let text = str::from_utf8(input).ok()?;
    let mut parts = text.splitn(N, "\n---\n");
    let mut out = [""; N];
    for part in &mut out {
        *part = parts.next()?;
    }
    Some(out)
}

/// The schema of pods.
pub static POD: LazyLock<Arc<Schema>> = LazyLock::new(|| builtin::schema("", "v1", "Pod").expect("pods have a schema"));

/// The schema of virtual machine instances, with typed metadata.
pub static INSTANCE: LazyLock<Schema> = LazyLock::new(|| {
    let crd = ferrovirt_api::crds::crds()
        .into_iter()
        .map(|crd| serde_json::to_value(crd).expect("a CRD is JSON"))
        .find(|crd| crd["spec"]["names"]["kind"] == "VirtualMachineInstance")
        .expect("there is a CRD for instances");
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    Schema::from_json(schema).expect("our own schema is sound").with_object_meta()
});

/// A server that keeps everything in memory, on a clock that jumps to the next timer instead of waiting.
pub struct World {
    runtime: Runtime,
    server: Arc<Server>,
}

/// The one server of this process.
pub static WORLD: LazyLock<World> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without threads always starts");
    let keys = tempfile::tempdir().expect("a temporary directory");
    let (server, _) = runtime
        .block_on(cluster::in_memory(keys.path(), Arc::new(Machine), CancellationToken::new()))
        .expect("the server starts");
    World { runtime, server }
});

impl World {
    /// Answers a request of the administrator. A broken promise of the server is a panic.
    pub fn ask(&self, request: Request<Bytes>) -> StatusCode {
        let (head, body) = request.into_parts();
        let body: RequestBody = Full::new(body).map_err(|never| match never {}).boxed_unsync();
        let peer = Peer::Trusted(UserInfo::new("fuzz", ["system:masters"]));
        self.runtime.block_on(async {
            let answer = self.server.handle(Request::from_parts(head, body), &peer).await;
            // A server without end, whose history must not grow with the number of inputs.
            let _ = self.server.store.compact(self.server.store.revision()).await;
            answer.status()
        })
    }
}
