//! `virtctl start`, `stop`, `restart`.

use std::time::Duration;

use anyhow::{Context, bail};
use http::Method;
use serde_json::{Value, json};

use super::dry_run;
use crate::cluster::Cluster;
use crate::progress::Progress;
use crate::session::Session;
use crate::target::{Kind, Target};
use crate::until::{until, within};

/// Waiting for the result.
#[derive(clap::Args, Clone)]
pub(crate) struct Wait {
    /// Wait until it has happened.
    #[arg(long)]
    wait: bool,
    /// How long to wait.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = crate::time::duration)]
    timeout: Duration,
}

/// Arguments of `start`.
#[derive(clap::Args, Clone)]
pub(crate) struct Start {
    /// The machine: `NAME` or `vm/NAME`.
    #[arg(value_name = "VM")]
    name: String,
    /// Start it with its processors stopped; `unpause` lets them go.
    #[arg(long)]
    paused: bool,
    /// Check only; change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    wait: Wait,
}

/// Arguments of `stop` and `restart`.
#[derive(clap::Args, Clone)]
pub(crate) struct Stop {
    /// The machine: `NAME` or `vm/NAME`.
    #[arg(value_name = "VM")]
    name: String,
    /// Do not wait for the guest's own shutdown; needs --grace-period.
    #[arg(long)]
    force: bool,
    /// Seconds that the guest has for its shutdown; needs --force.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    grace_period: Option<i64>,
    /// Check only; change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    wait: Wait,
}

impl Stop {
    fn grace_period(&self) -> anyhow::Result<Option<i64>> {
        if self.force != self.grace_period.is_some() {
            bail!("Must both use --force=true and set --grace-period.");
        }
        Ok(self.grace_period)
    }
}

/// `virtctl start`
pub(crate) async fn start(cluster: &Cluster, args: &Start) -> anyhow::Result<()> {
    let machine = Machine::new(cluster, &args.name).await?;
    let mut options = json!({});
    if args.paused {
        options["paused"] = json!(true);
    }
    dry_run(&mut options, args.dry_run);
    machine.order("start", &options).await.context("Error starting VirtualMachine ")?;
    if args.wait.wait && !args.dry_run {
        machine.wait(&args.wait, "running", is_up).await?;
    }
    Ok(())
}

/// `virtctl stop`
pub(crate) async fn stop(cluster: &Cluster, args: &Stop) -> anyhow::Result<()> {
    let grace = args.grace_period()?;
    let machine = Machine::new(cluster, &args.name).await?;
    let mut options = json!({});
    if let Some(grace) = grace {
        options["gracePeriod"] = json!(grace);
    }
    dry_run(&mut options, args.dry_run);
    let trouble = if args.force { "error force stopping VirtualMachine" } else { "error stopping VirtualMachine " };
    machine.order("stop", &options).await.context(trouble)?;
    if args.wait.wait && !args.dry_run {
        machine.wait(&args.wait, "stopped", |vm| vm["status"]["printableStatus"] == "Stopped").await?;
    }
    Ok(())
}

/// `virtctl restart`
pub(crate) async fn restart(cluster: &Cluster, args: &Stop) -> anyhow::Result<()> {
    let grace = args.grace_period()?;
    let machine = Machine::new(cluster, &args.name).await?;
    let mut options = json!({});
    if let Some(grace) = grace {
        options["gracePeriodSeconds"] = json!(grace);
    }
    dry_run(&mut options, args.dry_run);
    let before = if args.wait.wait { machine.guest_uid().await? } else { None };
    let trouble = if args.force { "error force restarting VirtualMachine" } else { "error restarting VirtualMachine " };
    machine.order("restart", &options).await.context(trouble)?;
    if args.wait.wait && !args.dry_run {
        machine.wait_for_another(&args.wait, before).await?;
    }
    Ok(())
}

fn is_up(vm: &Value) -> bool {
    matches!(vm["status"]["printableStatus"].as_str(), Some("Running" | "Paused"))
}

struct Machine {
    session: Session,
    name: String,
}

impl Machine {
    async fn new(cluster: &Cluster, name: &str) -> anyhow::Result<Self> {
        let name = Target::machine(name)?;
        Ok(Self { session: cluster.session().await?, name })
    }

    async fn order(&self, order: &str, options: &Value) -> anyhow::Result<()> {
        let path = Session::subresource(&self.session.namespace, Kind::Machine.resource(), &self.name, order);
        self.session.send(Method::PUT, &path, options).await?;
        println!("VM {} was scheduled to {order}", self.name);
        Ok(())
    }

    async fn guest_uid(&self) -> anyhow::Result<Option<Value>> {
        let path = format!("{}/{}", Session::collection(&self.session.namespace, Kind::Guest.resource()), self.name);
        Ok(self.session.find(&path).await?.map(|guest| guest["metadata"]["uid"].clone()))
    }

    /// Waits for a state of the machine, which it tells itself.
    async fn wait(&self, wait: &Wait, word: &str, is_there: fn(&Value) -> bool) -> anyhow::Result<()> {
        let progress = Progress::new(format!("{}: waiting until it is {word}", self.name));
        let machines = Session::collection(&self.session.namespace, Kind::Machine.resource());
        let watched = until(&self.session, &machines, &self.name, |vm| {
            let Some(vm) = vm else { bail!("VM {} was deleted", self.name) };
            progress.say(format!("{}: {}", self.name, vm["status"]["printableStatus"].as_str().unwrap_or("Unknown")));
            Ok(is_there(vm).then_some(()))
        });
        let what = || format!("VM {} to be {word}; \"virtctl why {}\" tells what it waits for", self.name, self.name);
        progress.during(within(wait.timeout, what, watched)).await?;
        println!("VM {} is {word}", self.name);
        Ok(())
    }

    /// Waits for a guest that is not the one of before and runs.
    async fn wait_for_another(&self, wait: &Wait, before: Option<Value>) -> anyhow::Result<()> {
        let progress = Progress::new(format!("{}: waiting until it runs again", self.name));
        let guests = Session::collection(&self.session.namespace, Kind::Guest.resource());
        let watched = until(&self.session, &guests, &self.name, |guest| {
            let phase = guest.map_or("Stopped", |guest| guest["status"]["phase"].as_str().unwrap_or("Pending"));
            progress.say(format!("{}: {phase}", self.name));
            let other = guest.is_some_and(|guest| Some(&guest["metadata"]["uid"]) != before.as_ref());
            Ok((other && phase == "Running").then_some(()))
        });
        let what = || format!("VM {} to run again; \"virtctl why {}\" tells what it waits for", self.name, self.name);
        progress.during(within(wait.timeout, what, watched)).await?;
        println!("VM {} is running", self.name);
        Ok(())
    }
}
