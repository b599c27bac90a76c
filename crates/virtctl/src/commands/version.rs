//! `virtctl version`.

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::output::{Format, print};

/// The version of KubeVirt's API that this client speaks, and ours behind the plus.
const VERSION: &str = concat!("v1.9.0+ferrovirt.", env!("CARGO_PKG_VERSION"));

/// Arguments of `version`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    /// Only this program's; asks no cluster.
    #[arg(short, long)]
    client: bool,
    /// Format of the result.
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,
}

/// `virtctl version`
pub(crate) async fn run(cluster: &Cluster, args: &Args) -> anyhow::Result<()> {
    let ours = json!({
        "gitVersion": VERSION, "gitCommit": "", "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    });
    // Printed before the server is asked: a cluster that is away does not hide it.
    if args.output.is_none() {
        println!("Client Version: {}", line(&ours));
    }
    let mut versions = json!({"clientVersion": ours});
    if !args.client {
        let session = cluster.session().await?;
        versions["serverVersion"] = session.get("/apis/subresources.kubevirt.io/v1/version").await?;
    }
    match args.output {
        Some(format) => print(&format.text(&versions)?),
        None if args.client => Ok(()),
        None => print(&format!("Server Version: {}\n", line(&versions["serverVersion"]))),
    }
}

/// As Go prints the structure: scripts search for `GitVersion:"…"`.
fn line(version: &Value) -> String {
    let field = |(label, name): (&str, &str)| format!("{label}:{:?}", version[name].as_str().unwrap_or_default());
    let fields = [
        ("GitVersion", "gitVersion"),
        ("GitCommit", "gitCommit"),
        ("GitTreeState", "gitTreeState"),
        ("BuildDate", "buildDate"),
        ("GoVersion", "goVersion"),
        ("Compiler", "compiler"),
        ("Platform", "platform"),
    ];
    format!("version.Info{{{}}}", fields.map(field).join(", "))
}
