//! A cluster in memory with one node on this machine. Everything it makes is gone when it is dropped, also after a failure.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use ferrovirt_apiserver::auth::UserInfo;
use ferrovirt_apiserver::cluster;
use ferrovirt_apiserver::serve::erase;
use ferrovirt_apiserver::server::{Machine, Peer, Server};
use ferrovirt_kubernetes::Pod;
use ferrovirt_node::api::log_lines::{Filter, Options};
use ferrovirt_node::sources::{Image, ImageProblem, PodNetwork, PullPolicy, PullSecret};
use ferrovirt_node::{ImageSource, LocalNodes, NodeConfig, PodNetworks};
use futures::future::BoxFuture;
use http::Request;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long anything may take on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

/// Images are directories of the machine, by name.
#[derive(Default)]
pub(crate) struct Directories {
    pub(crate) images: Mutex<Vec<(String, Image)>>,
    holders: Mutex<BTreeSet<String>>,
}

impl ImageSource for Directories {
    fn resolve<'a>(
        &'a self,
        reference: &'a str,
        _policy: PullPolicy,
        _secrets: &'a [PullSecret],
        holder: &'a str,
    ) -> BoxFuture<'a, Result<Image, ImageProblem>> {
        Box::pin(async move {
            let known = self.images.lock().unwrap();
            self.holders.lock().unwrap().insert(holder.to_owned());
            let found = known.iter().find(|(name, _)| name == reference);
            found.map(|(_, image)| image.clone()).ok_or_else(|| ImageProblem::Pull(format!("no image {reference}")))
        })
    }

    fn release(&self, holder: &str) -> Result<(), String> {
        self.holders.lock().unwrap().remove(holder);
        Ok(())
    }

    fn holders(&self) -> Result<Vec<String>, String> {
        Ok(self.holders.lock().unwrap().iter().cloned().collect())
    }
}

/// Network namespaces with nothing but a loopback.
#[derive(Default)]
pub(crate) struct Namespaces(Mutex<BTreeSet<String>>);

fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

fn namespace(uid: &str) -> String {
    format!("fvtest-{}", &uid[..13])
}

impl PodNetworks for Namespaces {
    fn attach<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, Result<PodNetwork, String>> {
        Box::pin(async move {
            let name = namespace(uid);
            let path = PathBuf::from("/run/netns").join(&name);
            if !path.exists() {
                ip(&["netns", "add", &name])?;
                ip(&["-n", &name, "link", "set", "lo", "up"])?;
            }
            self.0.lock().unwrap().insert(uid.to_owned());
            let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
            Ok(PodNetwork { namespace: path, addresses: vec![address], dns_servers: vec![], dns_searches: vec![] })
        })
    }

    fn detach<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let name = namespace(uid);
            if PathBuf::from("/run/netns").join(&name).exists() {
                ip(&["netns", "delete", &name])?;
            }
            self.0.lock().unwrap().remove(uid);
            Ok(())
        })
    }

    fn addresses(&self) -> Result<HashMap<String, Vec<IpAddr>>, String> {
        Ok(HashMap::new())
    }

    fn restrict<'a>(&'a self, _rules: Option<&'a str>) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }

    fn attached(&self) -> Result<Vec<String>, String> {
        Ok(self.0.lock().unwrap().iter().cloned().collect())
    }
}

/// What a machine shows of pods that ran on it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Traces {
    mounts: BTreeSet<String>,
    namespaces: BTreeSet<String>,
    groups: BTreeSet<String>,
    processes: BTreeSet<String>,
    loops: BTreeSet<String>,
}

/// A node in a directory of its own; the name tells its processes, mounts and groups from those of other tests.
pub(crate) struct Cluster {
    pub(crate) server: Arc<Server>,
    pub(crate) images: Arc<Directories>,
    pub(crate) networks: Arc<Namespaces>,
    pub(crate) config: NodeConfig,
    node: Option<(JoinHandle<()>, CancellationToken)>,
    stop: CancellationToken,
    listening: Option<cluster::Cluster>,
    directory: tempfile::TempDir,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let directory = tempfile::Builder::new().prefix("fvnode-").tempdir().unwrap();
        let stop = CancellationToken::new();
        let keys = directory.path().join("keys");
        let (server, _keeper) = cluster::in_memory(&keys, Arc::new(Machine), stop.clone()).await.unwrap();
        let name = directory.path().file_name().unwrap().to_string_lossy().to_lowercase();
        let name = name.trim_start_matches('.').replace('_', "-");
        let mut config = NodeConfig::new(name, directory.path().join("node"));
        config.binaries = directory.path().join("bin");
        config.heartbeat = Duration::from_secs(1);
        config.addresses = vec![IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        std::fs::create_dir_all(&config.binaries).unwrap();
        let mut cluster = Self {
            server,
            images: Arc::default(),
            networks: Arc::default(),
            config,
            node: None,
            stop,
            listening: None,
            directory,
        };
        cluster.start_node();
        cluster
    }

    /// A cluster that listens, for programs outside of this process.
    pub(crate) async fn with_socket() -> Self {
        let mut cluster = Self::start().await;
        let config = cluster::Config {
            directory: cluster.directory.path().join("cluster"),
            listen: std::net::SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            token_file: None,
        };
        cluster.kill_node().await;
        let listening = cluster::start(&config).await.unwrap();
        cluster.server = listening.server.clone();
        let nodes = LocalNodes::new(cluster.directory.path().join("nodes"));
        cluster.config.directory = cluster.directory.path().join("nodes").join(&cluster.config.name);
        cluster.server.mounts.nodes.reach_through(Arc::new(nodes));
        cluster.listening = Some(listening);
        cluster.start_node();
        cluster
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.listening.as_ref().unwrap().kubeconfig.clone()
    }

    pub(crate) async fn until_log(&self, name: &str, container: &str, wanted: &str) {
        let pod = self.pods().get(name).await.unwrap();
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !self.log(&pod, container).contains(wanted) {
            assert!(tokio::time::Instant::now() < deadline, "{wanted} is not in {}", self.log(&pod, container));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        self.directory.path()
    }

    pub(crate) fn client(&self) -> kube::Client {
        let (server, user) = (self.server.clone(), UserInfo::new("admin", ["system:masters"]));
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (server, peer) = (server.clone(), Peer::Trusted(user.clone()));
            async move { Ok::<_, std::convert::Infallible>(server.handle(request.map(erase), &peer).await) }
        });
        kube::Client::new(service, "default")
    }

    pub(crate) fn start_node(&mut self) {
        let (config, client, stop) = (self.config.clone(), self.client(), CancellationToken::new());
        let (images, networks, stopped) = (self.images.clone(), self.networks.clone(), stop.clone());
        let task = tokio::spawn(async move {
            ferrovirt_node::run(config, client, images, networks, stopped).await.unwrap();
        });
        self.node = Some((task, stop));
    }

    /// Ends the node as a kill would: in the middle of whatever it does.
    pub(crate) async fn kill_node(&mut self) {
        let (task, _) = self.node.take().unwrap();
        task.abort();
        let _ = task.await;
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client())
    }

    /// Creates a pod on the node; `spec` is completed.
    pub(crate) async fn run(&self, name: &str, mut spec: Value) -> Pod {
        spec["nodeName"] = json!(self.config.name);
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap()
    }

    /// Waits until the pod is as wanted.
    pub(crate) async fn until(&self, name: &str, what: &str, wanted: impl Fn(&Pod) -> bool) -> Pod {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let pod = self.pods().get(name).await.unwrap();
            if wanted(&pod) {
                return pod;
            }
            let late = tokio::time::Instant::now() > deadline;
            assert!(!late, "pod {name} is not {what}: {}", serde_json::to_string_pretty(&pod.status).unwrap());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn until_phase(&self, name: &str, phase: &str) -> Pod {
        self.until(name, phase, |pod| pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some(phase)).await
    }

    pub(crate) async fn delete(&self, name: &str, grace: u32) {
        self.pods().delete(name, &DeleteParams::default().grace_period(grace)).await.unwrap();
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while self.pods().get_opt(name).await.unwrap().is_some() {
            assert!(tokio::time::Instant::now() < deadline, "pod {name} is still there");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) fn log(&self, pod: &Pod, container: &str) -> String {
        let uid = pod.metadata.uid.as_deref().unwrap();
        let path = self.config.directory.join("pods").join(uid).join("containers").join(container).join("log.0");
        let file = std::fs::read(path).unwrap_or_default();
        String::from_utf8_lossy(&Filter::new(Options::default()).whole(&file).0).into_owned()
    }

    /// Everything on the machine that has this node's name or directory in it.
    pub(crate) fn traces(&self) -> Traces {
        let mine = |text: &str| text.contains(&*self.directory.path().to_string_lossy());
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let uids: Vec<String> = self.networks.attached().unwrap();
        let groups = Command::new("find").args(["/sys/fs/cgroup", "-maxdepth", "4", "-type", "d"]).output().unwrap();
        let groups = String::from_utf8_lossy(&groups.stdout).into_owned();
        let processes = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
            let line = std::fs::read_to_string(entry.path().join("cmdline")).ok()?;
            mine(&line).then_some(line)
        });
        let loops = Command::new("losetup").args(["--list", "--noheadings", "--output", "BACK-FILE"]).output().unwrap();
        Traces {
            mounts: mounts.lines().filter(|line| mine(line)).map(str::to_owned).collect(),
            namespaces: uids.into_iter().collect(),
            groups: groups.lines().filter(|line| line.contains(&self.config.name)).map(str::to_owned).collect(),
            processes: processes.collect(),
            loops: String::from_utf8_lossy(&loops.stdout)
                .lines()
                .filter(|line| mine(line))
                .map(str::to_owned)
                .collect(),
        }
    }

    /// Waits until the machine looks like this again: monitors take a moment to end.
    pub(crate) async fn until_traces(&self, wanted: &Traces) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let now = self.traces();
            if now == *wanted {
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "left on the machine: {now:#?}\nbefore: {wanted:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some((task, _)) = &self.node {
            task.abort();
        }
        self.stop.cancel();
        // A failed test leaves containers: kill them through their groups, then take everything away.
        let root = self.directory.path();
        let groups = Command::new("find")
            .args(["/sys/fs/cgroup", "-depth", "-path", &format!("*{}*", self.config.name), "-type", "d"])
            .output();
        let groups = groups.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        for group in groups.lines() {
            for pid in std::fs::read_to_string(format!("{group}/cgroup.procs")).unwrap_or_default().lines() {
                let _ = Command::new("kill").args(["-9", pid]).output();
            }
        }
        for _ in 0..50 {
            let left =
                groups.lines().filter(|group| std::fs::remove_dir(group).is_err() && PathBuf::from(group).exists());
            if left.count() == 0 {
                break;
            }
            let _ = Command::new("sleep").arg("0.02").output();
        }
        for uid in self.networks.attached().unwrap_or_default() {
            let _ = ip(&["netns", "delete", &namespace(&uid)]);
        }
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        for line in mounts.lines().rev() {
            let point = line.split(' ').nth(4).unwrap_or_default();
            if point.starts_with(&*root.to_string_lossy()) {
                let _ = Command::new("umount").args(["-l", point]).output();
            }
        }
        let loops = Command::new("losetup").args(["--list", "--noheadings", "--output", "NAME,BACK-FILE"]).output();
        for line in loops.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default().lines()
        {
            if let Some((name, file)) = line.split_once(' ')
                && file.contains(&*root.to_string_lossy())
            {
                let _ = Command::new("losetup").args(["--detach", name]).output();
            }
        }
    }
}

/// A pod of one container with the machine's own programs.
pub(crate) fn shell(script: &str) -> Value {
    json!({
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "containers": [{"name": "main", "image": "host.ferrovirt.io/usr", "command": ["/bin/sh", "-c", script]}],
    })
}
