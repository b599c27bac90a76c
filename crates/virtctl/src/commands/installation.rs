//! The installation's configuration: `virtctl permitted-devices` and `virtctl adm log-verbosity`.

use anyhow::{Context, bail};
use http::Method;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::output::print;
use crate::session::Session;

const COMPONENTS: [&str; 5] = ["virt-api", "virt-controller", "virt-handler", "virt-launcher", "virt-operator"];
/// What components tell when nobody says.
const USUAL: u64 = 2;
/// The value of a flag without one: show.
const SHOW: u64 = 10;

/// Arguments of `adm`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Clone)]
enum What {
    /// Show or set how much components tell, 0 to 9.
    #[command(
        after_long_help = "Examples:\n  virtctl adm log-verbosity --all             # show\n  virtctl adm log-verbosity --virt-api=5      # set\n  virtctl adm log-verbosity --reset"
    )]
    LogVerbosity(Verbosity),
}

/// Arguments of `adm log-verbosity`.
#[derive(clap::Args, Clone)]
struct Verbosity {
    /// virt-api; without a value it is shown.
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "10")]
    virt_api: Option<u64>,
    /// virt-controller
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "10")]
    virt_controller: Option<u64>,
    /// virt-handler
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "10")]
    virt_handler: Option<u64>,
    /// virt-launcher
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "10")]
    virt_launcher: Option<u64>,
    /// virt-operator
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "10")]
    virt_operator: Option<u64>,
    /// Every component.
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "10")]
    all: Option<u64>,
    /// As it was before anybody set it.
    #[arg(long)]
    reset: bool,
}

/// The KubeVirt object of the cluster.
async fn installation(session: &Session) -> anyhow::Result<Value> {
    let list = session
        .get("/apis/kubevirt.io/v1/kubevirts")
        .await
        .context("could not list KubeVirt CRs across all namespaces")?;
    match list["items"].as_array().map(Vec::as_slice) {
        Some([one]) => Ok(one.clone()),
        Some([]) | None => {
            bail!("could not detect a KubeVirt installation: there is no KubeVirt object in this cluster")
        }
        Some(_) => bail!("invalid kubevirt installation, more than one KubeVirt resource found"),
    }
}

/// `virtctl permitted-devices`
pub(crate) async fn devices(cluster: &Cluster) -> anyhow::Result<()> {
    let kubevirt = installation(&cluster.session().await?).await?;
    let permitted = &kubevirt["spec"]["configuration"]["permittedHostDevices"];
    let names = |list: &str| {
        let devices = permitted[list].as_array().into_iter().flatten();
        devices.filter_map(|device| device["resourceName"].as_str()).collect::<Vec<_>>().join(", ")
    };
    let (host, gpu) = (names("pciHostDevices"), names("mediatedDevices"));
    print(&format!("Permitted Devices: \nHost Devices: \n{host} \nGPU Devices: \n{gpu}\n"))
}

/// `virtctl adm`
pub(crate) async fn adm(cluster: &Cluster, args: &Args) -> anyhow::Result<()> {
    let What::LogVerbosity(args) = &args.what;
    let session = cluster.session().await?;
    let kubevirt = installation(&session).await?;
    let present = &kubevirt["spec"]["configuration"]["developerConfiguration"]["logVerbosity"];
    match args.plan(present)? {
        Plan::Show(lines) => print(&lines),
        Plan::Set(verbosity) => {
            let (namespace, name) = (&kubevirt["metadata"]["namespace"], &kubevirt["metadata"]["name"]);
            let path = format!(
                "{}/{}",
                Session::collection(namespace.as_str().unwrap_or_default(), "kubevirts"),
                name.as_str().unwrap_or_default()
            );
            let patch = json!({"spec": {"configuration": {"developerConfiguration": {"logVerbosity": verbosity}}}});
            let body = Some(("application/merge-patch+json", &patch));
            session.ask(Method::PATCH, &path, body, "application/json").await?;
            print("successfully set/reset the log verbosity\n")
        }
    }
}

/// What is done about levels.
#[derive(Debug, PartialEq)]
enum Plan {
    Show(String),
    /// A merge patch.
    Set(Value),
}

impl Verbosity {
    fn levels(&self) -> [Option<u64>; 5] {
        [self.virt_api, self.virt_controller, self.virt_handler, self.virt_launcher, self.virt_operator]
    }

    fn plan(&self, present: &Value) -> anyhow::Result<Plan> {
        let given: Vec<(&str, u64)> = COMPONENTS
            .into_iter()
            .zip(self.levels())
            .filter_map(|(component, level)| Some((component, level.or(self.all)?)))
            .collect();
        if given.is_empty() && !self.reset {
            bail!("no flag specified - expecting at least one flag: name a component, --all or --reset");
        }
        let shown = given.iter().filter(|(_, level)| *level == SHOW).count();
        if shown > 0 && (shown < given.len() || self.reset) {
            bail!("only show or set is allowed: give every flag a level, or none");
        }
        if shown > 0 {
            let line = |(component, _): &(&str, u64)| {
                let level = present[field(component)].as_u64().unwrap_or(USUAL);
                format!("{component}={level}\n")
            };
            return Ok(Plan::Show(given.iter().map(line).collect()));
        }
        let mut wanted = json!({});
        if self.reset {
            for component in COMPONENTS {
                wanted[field(component)] = Value::Null;
            }
        }
        for (component, level) in given {
            if level > 9 {
                bail!("{component}: log verbosity must be 0-9");
            }
            wanted[field(component)] = json!(level);
        }
        Ok(Plan::Set(wanted))
    }
}

/// `virt-api` is `virtAPI` in the configuration.
fn field(component: &str) -> &'static str {
    match component {
        "virt-api" => "virtAPI",
        "virt-controller" => "virtController",
        "virt-handler" => "virtHandler",
        "virt-launcher" => "virtLauncher",
        _ => "virtOperator",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Verbosity,
    }

    fn plan(flags: &str) -> anyhow::Result<Plan> {
        let words = format!("x {flags}");
        Line::parse_from(words.split_whitespace()).args.plan(&json!({"virtAPI": 7}))
    }

    #[test]
    fn levels_are_shown_or_set() {
        assert_eq!(plan("--virt-api --virt-handler").unwrap(), Plan::Show("virt-api=7\nvirt-handler=2\n".to_owned()));
        assert_eq!(plan("--virt-api=3").unwrap(), Plan::Set(json!({"virtAPI": 3})));
        let all = json!({"virtAPI": 1, "virtController": 5, "virtHandler": 5, "virtLauncher": 5, "virtOperator": 5});
        assert_eq!(plan("--all=5 --virt-api=1").unwrap(), Plan::Set(all));
        let Plan::Set(reset) = plan("--reset --virt-handler=4").unwrap() else { panic!() };
        assert_eq!((&reset["virtAPI"], &reset["virtHandler"]), (&Value::Null, &json!(4)));
        for wrong in ["", "--virt-api --virt-handler=3", "--virt-api=12", "--reset --virt-api"] {
            assert!(plan(wrong).is_err(), "{wrong}");
        }
    }
}
