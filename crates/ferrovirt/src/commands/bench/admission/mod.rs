//! `ferrovirt bench admission`: what it costs to default and to check a virtual machine, in a function call and in a webhook.
//!
//! The webhooks are asked over TLS, in a virt-api process of its own that works for an API server inside of the bench. Client and
//! server share the machine, so what it can do at most is less than a virt-api alone could.

mod load;
mod report;

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail};
use ferrovirt_api::defaults::Inputs;
use ferrovirt_api::kubevirt::Configuration;
use ferrovirt_api::vmi::Architecture;
use ferrovirt_apiserver::cluster::{self, Config};
use ferrovirt_virt_api::admission::review::{self, Facts, Kind, Operation, Others, Request, User};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use self::load::{Client, Load};
use self::report::{Calls, Memory, Report, Webhooks};

/// Two disks, a network interface, cloud-init. A second interface needs a network that is not supported yet.
const MACHINE: &str = include_str!("vm.json");
/// How long a virt-api may take to be ready.
const START: Duration = Duration::from_secs(30);

/// Arguments of `bench admission`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    /// How many seconds each of the three measurements takes.
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Connections to virt-api, each with one call at a time.
    #[arg(long, default_value = "8", value_parser = clap::value_parser!(u32).range(1..=1000))]
    connections: u32,
    /// Webhook calls in a second while latencies are measured.
    #[arg(long, default_value = "2000", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// Output format.
    #[arg(short, long, default_value = "text")]
    output: super::Format,
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let time = Duration::from_secs(args.seconds);
    eprintln!("defaulting and checking in a loop ...");
    let judgement = judge(time)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let webhooks = runtime.block_on(webhooks(args, time))?;
    let report = Report { judgement, webhooks, rate: args.rate, connections: args.connections };
    match args.output {
        super::Format::Text => print!("{}", report.table()),
        super::Format::Json => println!("{}", report.json()),
    }
    Ok(())
}

/// How long one machine takes from the parsed object to the one with defaults, on one core.
fn judge(time: Duration) -> anyhow::Result<Calls> {
    let machine: Value = serde_json::from_str(MACHINE)?;
    let (configuration, extra, groups) = (Configuration::default(), Default::default(), []);
    let request = Request {
        kind: Kind::Machine,
        subresource: "",
        operation: Operation::Create,
        namespace: "default",
        name: "web-1",
        object: &machine,
        old_object: &Value::Null,
        user: User { name: "jane", groups: &groups, extra: &extra, installation: "kubevirt" },
    };
    let facts = || Facts {
        cluster: &configuration,
        inputs: Inputs { now: Time(jiff::Timestamp::now()), uuid: 1, architecture: Architecture::Amd64 },
        others: Others::default(),
    };
    if let Err(refusal) = review::review(&request, &facts()) {
        bail!("the bench's own machine is refused: {}", refusal.message);
    }
    let (begin, mut times) = (Instant::now(), Vec::new());
    while begin.elapsed() < time {
        let before = Instant::now();
        let judged = std::hint::black_box(review::review(std::hint::black_box(&request), &facts()));
        times.push(before.elapsed());
        drop(judged);
    }
    Ok(Calls::new(times, begin.elapsed()))
}

/// Starts an API server and a virt-api for it, and asks its webhooks.
async fn webhooks(args: &Args, time: Duration) -> anyhow::Result<Webhooks> {
    let directory = std::env::temp_dir().join(format!("ferrovirt-bench-{}", std::process::id()));
    let measured = tokio::select! {
        measured = measure(args, time, &directory) => measured,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    std::fs::remove_dir_all(&directory).with_context(|| format!("cannot remove {}", directory.display()))?;
    measured
}

async fn measure(args: &Args, time: Duration, directory: &Path) -> anyhow::Result<Webhooks> {
    let config = Config { directory: directory.to_owned(), listen: ([127, 0, 0, 1], 0).into(), token_file: None };
    let cluster = cluster::start(&config).await?;
    super::super::serve::install_crds(&cluster.server).await?;
    let pki = cluster.server.identity.pki();
    let identity = pki.server_identity("virt-api", &["localhost".to_owned()], SystemTime::now())?;
    let (certificate, key) = (directory.join("tls.crt"), directory.join("tls.key"));
    std::fs::write(&certificate, identity.certificate)?;
    std::fs::write(&key, identity.key)?;
    eprintln!("starting virt-api ...");
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["api", "--listen", "127.0.0.1:0", "--kubeconfig"]).arg(&cluster.kubeconfig);
    command.arg("--tls-certificate").arg(&certificate).arg("--tls-key").arg(&key);
    let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().context("cannot start virt-api")?;
    let address = tokio::time::timeout(START, ready(&mut child)).await.context("virt-api is not ready in time")??;
    let pid = child.id().context("virt-api ended")?;
    let client = Arc::new(Client::new(&address, cluster.server.identity.ca_certificate(), &review_body())?);
    let load = Load { client, connections: args.connections };
    let idle = Memory::of(pid)?;
    eprintln!("asking as fast as it goes ...");
    let fastest = load.run(time, None).await?;
    eprintln!("asking {} times in a second ...", args.rate);
    let paced = load.run(time, Some(args.rate)).await?;
    let loaded = Memory::of(pid)?;
    child.kill().await?;
    cluster.stop().await;
    Ok(Webhooks { fastest, paced, idle, loaded })
}

/// The address in the line that says so.
async fn ready(child: &mut Child) -> anyhow::Result<String> {
    let out = child.stdout.take().context("virt-api has no output")?;
    let mut lines = BufReader::new(out).lines();
    while let Some(line) = lines.next_line().await? {
        if let Some(address) = line.strip_prefix("ready https://") {
            return Ok(address.to_owned());
        }
    }
    bail!("virt-api ended before it was ready")
}

/// What the API server sends when the machine is created.
fn review_body() -> String {
    let machine: Value = serde_json::from_str(MACHINE).unwrap_or_default();
    let kind = json!({"group": "kubevirt.io", "version": "v1", "kind": "VirtualMachine"});
    let resource = json!({"group": "kubevirt.io", "version": "v1", "resource": "virtualmachines"});
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "0df28fbd-5f5f-11e8-bc74-36e6bb280816", "kind": kind, "resource": resource, "requestKind": kind,
            "requestResource": resource, "name": "web-1", "namespace": "default", "operation": "CREATE",
            "userInfo": {"username": "jane", "groups": ["dev", "system:authenticated"]},
            "object": machine, "oldObject": null, "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_one_that_is_admitted() {
        judge(Duration::ZERO).unwrap();
        assert!(review_body().contains("web-1"));
    }
}
