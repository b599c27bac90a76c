//! `virtctl console`: the guest's serial port in this terminal.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::bail;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::cluster::Cluster;
use crate::progress::Progress;
use crate::session::{Session, Socket};
use crate::stream::{self, Ended};
use crate::target::{Kind, Target};
use crate::until::{until, within};

/// Ctrl-].
const ESCAPE: u8 = 0x1d;

/// Arguments of `console`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    /// The guest: `NAME`, `vmi/NAME` or `vm/NAME`.
    #[arg(value_name = "VMI")]
    name: String,
    /// Minutes to wait for the guest to run.
    #[arg(long, value_name = "MINUTES", default_value_t = 5)]
    timeout: u64,
    /// Print what the guest wrote since its boot, and leave the console to whoever has it.
    #[arg(long)]
    log: bool,
    /// After --log, go on with what the guest writes.
    #[arg(short, long, requires = "log")]
    follow: bool,
    /// Only look: any number may watch while one types.
    #[arg(short, long)]
    watch: bool,
}

impl Args {
    /// The query of the stream; none for the console itself.
    fn query(&self) -> &'static str {
        match (self.log, self.watch || self.follow) {
            (false, false) => "",
            (true, false) => "?log=true",
            (false, true) => "?watch=true",
            (true, true) => "?log=true&watch=true",
        }
    }
}

/// A terminal that hands every key on as it is typed, until this is dropped.
struct RawTerminal(Option<Termios>);

impl RawTerminal {
    fn enter() -> Self {
        if !std::io::stdin().is_terminal() {
            return Self(None);
        }
        let Ok(before) = tcgetattr(std::io::stdin()) else { return Self(None) };
        let mut raw = before.clone();
        raw.make_raw();
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &raw);
        Self(Some(before))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}

/// What comes before Ctrl-] is for the guest.
fn until_escape(keys: &[u8]) -> (&[u8], bool) {
    match keys.iter().position(|key| *key == ESCAPE) {
        Some(end) => (&keys[..end], true),
        None => (keys, false),
    }
}

/// Waits until a guest runs, if somebody is about to start it.
async fn running(session: &Session, name: &str, patience: Duration) -> anyhow::Result<()> {
    let progress = Progress::new(format!("{name}: waiting until it runs"));
    let guests = Session::collection(&session.namespace, Kind::Guest.resource());
    let machine = format!("{}/{name}", Session::collection(&session.namespace, Kind::Machine.resource()));
    let is_machine = session.find(&machine).await?.is_some();
    let watched = until(session, &guests, name, |guest| {
        let Some(guest) = guest else {
            if is_machine {
                progress.say(format!("{name}: it does not run; \"virtctl start {name}\" starts it"));
                return Ok(None);
            }
            bail!("there is no virtual machine {name} in namespace {}", session.namespace);
        };
        let phase = guest["status"]["phase"].as_str().unwrap_or("Pending");
        progress.say(format!("{name}: {phase}"));
        // A guest that ended has no console; the server says so in its own words.
        Ok(matches!(phase, "Running" | "Failed" | "Succeeded").then_some(()))
    });
    let what = || format!("{name} to run; \"virtctl why {name}\" tells what it waits for");
    progress.during(within(patience, what, watched)).await
}

/// `virtctl console`
pub(crate) async fn run(cluster: &Cluster, args: &Args) -> anyhow::Result<()> {
    let name = Target::guest(&args.name)?;
    let session = cluster.session().await?;
    running(&session, &name, Duration::from_secs(args.timeout * 60)).await?;
    let what = format!("console{}", args.query());
    let path = Session::subresource(&session.namespace, Kind::Guest.resource(), &name, &what);
    let socket = session.stream(&path).await?;
    if args.query().is_empty() { attach(socket, &name).await } else { view(socket, args, &name).await }
}

/// Copies both ways until the user leaves. Losing the console, to another user or with the guest, is an error, as on KubeVirt.
async fn attach(socket: Socket, name: &str) -> anyhow::Result<()> {
    eprintln!("Successfully connected to {name} console. Press Ctrl+] or Ctrl+5 to exit console.\r");
    let terminal = RawTerminal::enter();
    let ended = stream::copy(socket, tokio::io::stdin(), tokio::io::stdout(), until_escape).await;
    drop(terminal);
    if let Ended::There(reason) = ended? {
        let reason = if reason.is_empty() { "the connection was lost" } else { &reason };
        eprintln!();
        bail!("The connection ended: {reason}");
    }
    Ok(())
}

/// Shows the guest's output; nothing is sent.
async fn view(socket: Socket, args: &Args, name: &str) -> anyhow::Result<()> {
    if args.watch && std::io::stderr().is_terminal() {
        eprintln!("Watching the console of {name}. Press Ctrl+C to leave.");
    }
    // An input that never ends and never has anything.
    let (silent, _open) = tokio::io::simplex(1);
    stream::copy(socket, silent, tokio::io::stdout(), stream::everything).await?;
    Ok(())
}
