//! `virtctl vnc`: the guest's display in a viewer of this machine; `vnc screenshot`: a picture of it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use http::Method;
use serde_json::json;
use tokio::net::TcpListener;

use crate::cluster::Cluster;
use crate::output::print;
use crate::session::Session;
use crate::stream;
use crate::target::{Kind, Target};

/// How long a viewer may take to connect.
const PATIENCE: Duration = Duration::from_secs(60);

/// Arguments of `vnc`.
#[derive(clap::Args, Clone)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    picture: Option<Picture>,
    #[command(flatten)]
    display: Display,
}

#[derive(clap::Args, Clone)]
struct Display {
    /// The guest: `NAME`, `vmi/NAME` or `vm/NAME`.
    #[arg(value_name = "VMI", required = true)]
    name: Option<String>,
    /// Start no viewer: print the port that one can connect to.
    #[arg(long)]
    proxy_only: bool,
    /// Address of this machine to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    address: IpAddr,
    /// Port of this machine to listen on; 0 for any.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Do not take the display from another viewer.
    #[arg(long)]
    preserve_session: bool,
    /// Viewer: tiger, chicken, real or remote-viewer. Default: the first that is installed.
    #[arg(long, value_name = "TYPE")]
    vnc_type: Option<Viewer>,
    /// Path of the viewer, with --vnc-type.
    #[arg(long, value_name = "FILE", requires = "vnc_type")]
    vnc_path: Option<PathBuf>,
}

#[derive(clap::Subcommand, Clone)]
enum Picture {
    /// Take a picture of a guest's display.
    #[command(
        after_long_help = "Examples:\n  virtctl vnc screenshot web -f web.png\n  virtctl vnc screenshot web -f - | feh -"
    )]
    Screenshot {
        /// The guest: `NAME`, `vmi/NAME` or `vm/NAME`.
        #[arg(value_name = "VMI")]
        name: String,
        /// File to write, as PNG; `-` for standard output.
        #[arg(short, long)]
        file: PathBuf,
        /// Move the pointer first, to wake a screen saver.
        #[arg(short, long)]
        move_cursor: bool,
    },
}

/// Viewers that are known.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum Viewer {
    /// virt-viewer's, which knows VNC and SPICE.
    #[value(name = "remote-viewer")]
    Remote,
    Tiger,
    Real,
    Chicken,
}

impl Viewer {
    const ALL: [Self; 4] = [Self::Remote, Self::Tiger, Self::Real, Self::Chicken];

    /// Where it may be: names in `$PATH`, and places of macOS.
    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Remote => &["remote-viewer"],
            Self::Tiger => &["vncviewer", "/Applications/TigerVNC.app/Contents/MacOS/vncviewer"],
            Self::Real => &["realvnc-viewer", "/Applications/VNC Viewer.app/Contents/MacOS/vncviewer"],
            Self::Chicken => &["chicken", "/Applications/Chicken.app/Contents/MacOS/Chicken"],
        }
    }

    fn arguments(self, address: IpAddr, port: u16) -> Vec<String> {
        let plain = std::net::SocketAddr::new(address, port).to_string();
        match self {
            Self::Remote => vec![format!("vnc://{plain}")],
            Self::Tiger | Self::Chicken => vec![plain],
            Self::Real => {
                [plain.as_str(), "-WarnUnencrypted=0", "-Shared=0", "-ShareFiles=0"].map(str::to_owned).to_vec()
            }
        }
    }

    /// The first of the wanted viewers that is installed.
    fn find(wanted: Option<Self>, path: Option<&Path>, search: &str) -> anyhow::Result<(Self, PathBuf)> {
        if let (Some(viewer), Some(path)) = (wanted, path) {
            if !path.exists() {
                bail!("specified VNC path does not exist: {}", path.display());
            }
            return Ok((viewer, path.to_owned()));
        }
        let installed = |program: &str| {
            let candidates = search.split(':').map(|directory| Path::new(directory).join(program));
            candidates.into_iter().find(|candidate| candidate.is_file())
        };
        let tried: Vec<Self> = wanted.map_or(Self::ALL.to_vec(), |viewer| vec![viewer]);
        for viewer in &tried {
            if let Some(program) = viewer.programs().iter().find_map(|program| installed(program)) {
                return Ok((*viewer, program));
            }
        }
        let names: Vec<&str> = tried.iter().map(|viewer| viewer.programs()[0]).collect();
        bail!(
            "could not find {} binary in $PATH: install one (virt-viewer, tigervnc-viewer), or use --proxy-only",
            names.join(" or ")
        );
    }
}

/// `virtctl vnc`
pub(crate) async fn run(cluster: &Cluster, args: &Args) -> anyhow::Result<()> {
    match &args.picture {
        Some(Picture::Screenshot { name, file, move_cursor }) => screenshot(cluster, name, file, *move_cursor).await,
        None => display(cluster, &args.display).await,
    }
}

async fn display(cluster: &Cluster, args: &Display) -> anyhow::Result<()> {
    let name = Target::guest(args.name.as_deref().unwrap_or_default())?;
    let viewer = match args.proxy_only {
        true => None,
        false => {
            let search = std::env::var("PATH").unwrap_or_default();
            Some(Viewer::find(args.vnc_type, args.vnc_path.as_deref(), &search)?)
        }
    };
    let session = cluster.session().await?;
    let what = if args.preserve_session { "vnc?preserveSession=true" } else { "vnc" };
    let path = Session::subresource(&session.namespace, Kind::Guest.resource(), &name, what);
    let socket = session.stream(&path).await.with_context(|| format!("can't access VMI {name}"))?;
    let listener = TcpListener::bind((args.address, args.port)).await;
    let listener =
        listener.with_context(|| format!("cannot listen on {}:{}: choose another --port", args.address, args.port))?;
    let port = listener.local_addr()?.port();
    let mut child = match viewer {
        None => {
            print(&format!("{}\n", json!({"port": port})))?;
            None
        }
        Some((viewer, program)) => {
            let mut command = tokio::process::Command::new(&program);
            command.args(viewer.arguments(args.address, port)).kill_on_drop(true);
            Some(command.spawn().with_context(|| format!("cannot run {}", program.display()))?)
        }
    };
    let accepted = tokio::select! {
        accepted = tokio::time::timeout(PATIENCE, listener.accept()) => accepted,
        () = ended(&mut child) => bail!("the viewer ended before it connected"),
        _ = tokio::signal::ctrl_c() => return Ok(()),
    };
    let (mut connection, _) =
        accepted.with_context(|| format!("no viewer connected within {} s", PATIENCE.as_secs()))??;
    let _ = connection.set_nodelay(true);
    let (input, output) = connection.split();
    tokio::select! {
        carried = stream::copy(socket, input, output, stream::everything) => drop(carried?),
        () = ended(&mut child) => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(())
}

/// Waits for the viewer; for ever if it is not ours.
async fn ended(child: &mut Option<tokio::process::Child>) {
    match child {
        Some(child) => drop(child.wait().await),
        None => std::future::pending().await,
    }
}

async fn screenshot(cluster: &Cluster, name: &str, file: &Path, move_cursor: bool) -> anyhow::Result<()> {
    let name = Target::guest(name)?;
    let session = cluster.session().await?;
    let what = if move_cursor { "vnc/screenshot?moveCursor=true" } else { "vnc/screenshot" };
    let path = Session::subresource(&session.namespace, Kind::Guest.resource(), &name, what);
    let picture = session.raw(Method::GET, &path, None, "*/*").await;
    let (_, picture) = picture.with_context(|| format!("Can't access VMI {name}"))?;
    if file.as_os_str() == "-" {
        return std::io::Write::write_all(&mut std::io::stdout(), &picture).context("failed to write image to stdout");
    }
    std::fs::write(file, picture).with_context(|| format!("Can't write image to {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn viewers_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let search = directory.path().display().to_string();
        let error = Viewer::find(None, None, &search).unwrap_err().to_string();
        assert!(error.contains("could not find remote-viewer or vncviewer"), "{error}");
        std::fs::write(directory.path().join("vncviewer"), "").unwrap();
        assert_eq!(Viewer::find(None, None, &search).unwrap().0, Viewer::Tiger);
        assert!(Viewer::find(Some(Viewer::Remote), None, &search).is_err());
        assert!(Viewer::find(Some(Viewer::Real), Some(Path::new("/nonexistent")), &search).is_err());
        let arguments = Viewer::Remote.arguments(IpAddr::from([127, 0, 0, 1]), 5901);
        assert_eq!(arguments, ["vnc://127.0.0.1:5901"]);
    }
}
