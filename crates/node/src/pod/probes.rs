//! Startup, readiness and liveness probes of one running container.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ferrovirt_kubernetes::Pod;
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Container, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use rustix::process::Signal;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

use ferrovirt_reconcile::Note;

use super::program::{self, Outcome};
use crate::context::Context;
use crate::process::{Process, ProcessIdentity};
use crate::runtime::Runtime;

/// What is probed.
pub(crate) struct Target {
    pub(crate) runtime: Runtime,
    /// The runtime's name of the container.
    pub(crate) id: String,
    /// Where TCP and HTTP probes go unless they name a host: the pod's address, from outside of the pod. Others are asked from inside of
    /// it: what the machine reaches, such as services on its loopback, is not the pod's author's to ask.
    pub(crate) address: Option<IpAddr>,
    pub(crate) process: Arc<Process>,
    /// For events.
    pub(crate) node: Arc<Context>,
    pub(crate) pod: Arc<Pod>,
}

/// What the probes of a container say. They end when this is dropped.
pub struct Probes {
    started: Arc<AtomicBool>,
    ready: Arc<AtomicBool>,
    _task: AbortOnDropHandle<()>,
}

impl Probes {
    /// The startup probe was content, or there is none.
    pub fn started(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }

    /// The readiness probe is content, or there is none.
    pub fn ready(&self) -> bool {
        self.started() && self.ready.load(Ordering::Acquire)
    }

    /// Probes a container from now on; `None`: it has no probes. `was_ready`: so it was before this process started, and a restart
    /// of the node is no news about the container.
    pub(crate) fn start(container: &Container, target: Target, wake: &Arc<Notify>, was_ready: bool) -> Option<Self> {
        let has_any = container.startup_probe.is_some()
            || container.readiness_probe.is_some()
            || container.liveness_probe.is_some();
        if !has_any {
            return None;
        }
        let started = Arc::new(AtomicBool::new(container.startup_probe.is_none() || was_ready));
        let ready = Arc::new(AtomicBool::new(container.readiness_probe.is_none() || was_ready));
        let run = run(container.clone(), target, started.clone(), ready.clone(), wake.clone());
        Some(Self { started, ready, _task: AbortOnDropHandle::new(tokio::spawn(run)) })
    }
}

async fn run(
    container: Container,
    target: Target,
    started: Arc<AtomicBool>,
    ready: Arc<AtomicBool>,
    wake: Arc<Notify>,
) {
    if let Some(probe) = container.startup_probe.as_ref().filter(|_| !started.load(Ordering::Acquire)) {
        let content = until_started(probe, &container, &target).await;
        if !content {
            end(&target, &container, "startup").await;
            return;
        }
        started.store(true, Ordering::Release);
        wake.notify_one();
    }
    let readiness = async {
        let Some(probe) = &container.readiness_probe else { return };
        let mut judge = Judge::new(probe, ready.load(Ordering::Acquire));
        tokio::time::sleep(initial_delay(probe)).await;
        loop {
            let outcome = check(probe, &container, &target).await;
            if let Err(message) = &outcome {
                unhealthy(&target, "Readiness", message);
            }
            if judge.add(outcome.is_ok()) {
                ready.store(judge.content, Ordering::Release);
                wake.notify_one();
            }
            tokio::time::sleep(period(probe)).await;
        }
    };
    let liveness = async {
        let Some(probe) = &container.liveness_probe else { return };
        let mut judge = Judge::new(probe, true);
        tokio::time::sleep(initial_delay(probe)).await;
        loop {
            let outcome = check(probe, &container, &target).await;
            if let Err(message) = &outcome {
                unhealthy(&target, "Liveness", message);
            }
            if judge.add(outcome.is_ok()) && !judge.content {
                return end(&target, &container, "liveness").await;
            }
            tokio::time::sleep(period(probe)).await;
        }
    };
    tokio::join!(readiness, liveness);
}

async fn until_started(probe: &Probe, container: &Container, target: &Target) -> bool {
    let mut judge = Judge::new(probe, false);
    let mut failures = 0;
    tokio::time::sleep(initial_delay(probe)).await;
    loop {
        match check(probe, container, target).await {
            Ok(()) if judge.add(true) => return true,
            Ok(()) => {}
            Err(message) => {
                unhealthy(target, "Startup", &message);
                judge.add(false);
                failures += 1;
                if failures >= judge.failure_threshold {
                    return false;
                }
            }
        }
        tokio::time::sleep(period(probe)).await;
    }
}

/// Whether the container has a probe that needs the pod's address.
pub(super) fn ask_the_network(container: &Container) -> bool {
    let all = [&container.startup_probe, &container.readiness_probe, &container.liveness_probe];
    all.into_iter().flatten().any(|probe| probe.tcp_socket.is_some() || probe.http_get.is_some())
}

fn seconds(value: Option<i32>, default: u64) -> Duration {
    Duration::from_secs(value.and_then(|value| u64::try_from(value).ok()).unwrap_or(default))
}

fn initial_delay(probe: &Probe) -> Duration {
    seconds(probe.initial_delay_seconds, 0)
}

fn period(probe: &Probe) -> Duration {
    seconds(probe.period_seconds.filter(|&seconds| seconds > 0), 10)
}

/// Turns single outcomes into a verdict.
#[derive(Debug)]
struct Judge {
    content: bool,
    streak: u32,
    success_threshold: u32,
    failure_threshold: u32,
}

impl Judge {
    fn new(probe: &Probe, content: bool) -> Self {
        let at_least_one = |value: Option<i32>, default| {
            value.and_then(|value| u32::try_from(value).ok()).filter(|&value| value > 0).unwrap_or(default)
        };
        Self {
            content,
            streak: 0,
            success_threshold: at_least_one(probe.success_threshold, 1),
            failure_threshold: at_least_one(probe.failure_threshold, 3),
        }
    }

    /// Takes an outcome in; whether the verdict changed.
    fn add(&mut self, good: bool) -> bool {
        if good == self.content {
            self.streak = 0;
            return false;
        }
        self.streak += 1;
        let needed = if good { self.success_threshold } else { self.failure_threshold };
        if self.streak < needed {
            return false;
        }
        self.content = good;
        self.streak = 0;
        true
    }
}

fn unhealthy(target: &Target, kind: &str, message: &str) {
    target.node.tell(&target.pod, Note::warning("Unhealthy", format!("{kind} probe failed: {message}")));
}

/// Asks the container to end, and kills it when it does not. Its restart policy says what comes next.
async fn end(target: &Target, container: &Container, kind: &str) {
    let message = format!("container {} failed its {kind} probe and will be ended", container.name);
    target.node.tell(&target.pod, Note::normal("Killing", message));
    let grace = target.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(30);
    let _ = target.process.signal(Signal::TERM);
    let patience = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
    if tokio::time::timeout(patience, target.process.ended()).await.is_err() {
        let _ = target.process.signal(Signal::KILL);
    }
}

/// One outcome.
async fn check(probe: &Probe, container: &Container, target: &Target) -> Result<(), String> {
    let patience = seconds(probe.timeout_seconds.filter(|&seconds| seconds > 0), 1);
    let outcome = async {
        if let Some(action) = &probe.exec {
            return execute(action.command.as_deref().unwrap_or_default(), target).await;
        }
        if let Some(action) = &probe.tcp_socket {
            let port = port(&action.port, container)?;
            return connect(action.host.as_deref(), port, target).await.map(|_| ());
        }
        if let Some(action) = &probe.http_get {
            return get(action, container, target).await;
        }
        Err("this node probes with exec, tcpSocket and httpGet".to_owned())
    };
    match tokio::time::timeout(patience, outcome).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("no answer within {} s", patience.as_secs())),
    }
}

async fn execute(command: &[String], target: &Target) -> Result<(), String> {
    let outcome = program::run(&target.node, &target.runtime, &target.id, command).await;
    let Outcome { status, said } = outcome.map_err(|error| error.to_string())?;
    if status.success() {
        return Ok(());
    }
    Err(format!("{} ended with {status}: {said}", command.first().map_or("", String::as_str)))
}

/// A port by number, or by the name of one of the container's ports.
fn port(written: &IntOrString, container: &Container) -> Result<u16, String> {
    let number = match written {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            let named = ports.find(|port| port.name.as_deref() == Some(name)).map(|port| port.container_port);
            named.or_else(|| name.parse().ok())
        }
    };
    number.and_then(|number| u16::try_from(number).ok()).ok_or_else(|| format!("container has no port {written:?}"))
}

async fn connect(host: Option<&str>, port: u16, target: &Target) -> Result<TcpStream, String> {
    let failed = |host: &dyn std::fmt::Display, error: io::Error| format!("connect to {host} port {port}: {error}");
    let Some(host) = host.filter(|host| !host.is_empty()) else {
        let own = target.address.ok_or("the pod has no address")?;
        return TcpStream::connect((own, port)).await.map_err(|error| failed(&own, error));
    };
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses(host)? {
        match connect_inside(SocketAddr::new(address, port), target.process.identity()).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(failed(&host, last))
}

/// The addresses of a host that a probe names. Names would be looked up where the machine looks them up.
fn addresses(host: &str) -> Result<Vec<IpAddr>, String> {
    if host == "localhost" {
        return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
    }
    let address = host.trim_start_matches('[').trim_end_matches(']').parse();
    address.map(|address| vec![address]).map_err(|_| {
        format!(
            "host {host:?} is no IP address: this node looks up no names for probes; without a host they go to the pod"
        )
    })
}

/// Connects as programs of the container do.
async fn connect_inside(address: SocketAddr, process: &ProcessIdentity) -> io::Result<TcpStream> {
    let process = process.clone();
    let open = move || {
        let namespace = fs::File::open(format!("/proc/{}/ns/net", process.pid))?;
        // Asked after the namespace is held: the number may be another process' by now.
        if ProcessIdentity::of(process.pid).as_ref() != Some(&process) {
            return Err(io::Error::other("the container has ended"));
        }
        let path = PathBuf::from(format!("/proc/self/fd/{}", namespace.as_raw_fd()));
        let socket = move || if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
        ferrovirt_cluster_network::run_in(&path, socket)
    };
    // Only the socket is made there: it stays in the namespace, and nobody waits for others on a thread.
    let socket = tokio::task::spawn_blocking(open).await.unwrap_or_else(|error| Err(io::Error::other(error)))?;
    socket.connect(address).await
}

async fn get(action: &HTTPGetAction, container: &Container, target: &Target) -> Result<(), String> {
    if action.scheme.as_deref() == Some("HTTPS") {
        return Err("this node probes with HTTP only, not with HTTPS".to_owned());
    }
    let port = port(&action.port, container)?;
    let stream = connect(action.host.as_deref(), port, target).await?;
    let host = stream.peer_addr().map(|address| address.to_string()).unwrap_or_default();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let _driver = AbortOnDropHandle::new(tokio::spawn(async move { drop(connection.await) }));
    let path = action.path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/");
    let mut request = http::Request::get(path).header("user-agent", "kube-probe/ferrovirt").header("accept", "*/*");
    let headers = action.http_headers.iter().flatten();
    let mut has_host = false;
    for header in headers {
        has_host |= header.name.eq_ignore_ascii_case("host");
        request = request.header(&header.name, &header.value);
    }
    if !has_host {
        request = request.header("host", host);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
    let code = sender.send_request(request).await.map_err(|error| error.to_string())?.status();
    if code.is_success() || code.is_redirection() { Ok(()) } else { Err(format!("HTTP status {code}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_changes_after_enough_outcomes_in_a_row() {
        let probe = Probe { failure_threshold: Some(2), success_threshold: Some(1), ..Probe::default() };
        let mut judge = Judge::new(&probe, false);
        assert!(!judge.add(false));
        assert!(judge.add(true));
        assert!(!judge.add(false));
        assert!(!judge.add(true));
        assert!(!judge.add(false));
        assert!(judge.add(false));
        assert!(!judge.content);
    }

    #[test]
    fn hosts_have_addresses_and_names_are_not_looked_up() {
        assert_eq!(addresses("192.0.2.1"), Ok(vec![IpAddr::from([192, 0, 2, 1])]));
        assert_eq!(addresses("[::1]"), Ok(vec![IpAddr::from(Ipv6Addr::LOCALHOST)]));
        assert_eq!(addresses("localhost").unwrap().len(), 2);
        for host in ["example.com", "127.1", "0", "fe80::1%eth0", ""] {
            assert!(addresses(host).unwrap_err().contains("no IP address"), "{host}");
        }
    }

    #[test]
    fn ports_have_numbers_or_names() {
        let container: Container =
            serde_json::from_str(r#"{"name": "c", "ports": [{"name": "web", "containerPort": 80}]}"#).unwrap();
        assert_eq!(port(&IntOrString::Int(22), &container), Ok(22));
        assert_eq!(port(&IntOrString::String("web".into()), &container), Ok(80));
        port(&IntOrString::String("db".into()), &container).unwrap_err();
        port(&IntOrString::Int(70000), &container).unwrap_err();
    }
}
