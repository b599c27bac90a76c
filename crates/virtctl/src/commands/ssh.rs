//! `virtctl ssh` and `scp`: the OpenSSH client of this machine, with `virtctl port-forward --stdio` as its way to the guest.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};

use crate::cluster::Cluster;
use crate::target::{self, Target};

/// What both commands pass on to OpenSSH.
#[derive(clap::Args, Clone)]
pub(crate) struct Options {
    /// User to log in as. Default: yours.
    #[arg(short = 'l', long, value_name = "USER")]
    username: Option<String>,
    /// Private key to log in with.
    #[arg(short, long, value_name = "FILE")]
    identity_file: Option<PathBuf>,
    /// File with the keys of known guests. Default: OpenSSH's.
    #[arg(long, value_name = "FILE")]
    known_hosts: Option<PathBuf>,
    /// Port of the guest.
    #[arg(short, long, default_value_t = 22)]
    port: u16,
    /// Option for the local client, such as `-t "-o StrictHostKeyChecking=no"`; may be given several times.
    #[arg(short = 't', long, value_name = "OPTION", allow_hyphen_values = true)]
    local_ssh_opts: Vec<String>,
    /// Kept for scripts: the local client is the only one.
    #[arg(long, hide = true, default_value_t = true, num_args = 0..=1, default_missing_value = "true", require_equals = true, action = clap::ArgAction::Set)]
    local_ssh: bool,
}

/// Arguments of `ssh`.
#[derive(clap::Args, Clone)]
pub(crate) struct Ssh {
    /// Where to: `NAME`, `user@vm/NAME`, `vmi/NAME` or `vm/NAME/NAMESPACE`.
    #[arg(value_name = "[USER@]TARGET")]
    target: String,
    /// Command to run there instead of a shell.
    #[arg(short, long)]
    command: Option<String>,
    /// The same, after `--`.
    #[arg(last = true, value_name = "COMMAND")]
    words: Vec<String>,
    #[command(flatten)]
    options: Options,
}

/// Arguments of `scp`.
#[derive(clap::Args, Clone)]
pub(crate) struct Scp {
    /// What to copy: a path here, or `user@vm/NAME:PATH`.
    source: String,
    /// Where to: `user@vm/NAME:PATH`, or a path here.
    destination: String,
    /// Copy directories with all that is in them.
    #[arg(short, long)]
    recursive: bool,
    /// Keep times and modes.
    #[arg(long)]
    preserve: bool,
    #[command(flatten)]
    options: Options,
}

/// `virtctl ssh`
pub(crate) async fn ssh(cluster: &Cluster, args: &Ssh) -> anyhow::Result<i32> {
    let (user, target) = target::with_user(&args.target)?;
    let namespace = namespace(cluster, &target).await?;
    let mut words = vec![host(&args.options, user, &target, &namespace)];
    words.extend(args.command.clone());
    words.extend(args.words.clone());
    run("ssh", client_options(cluster, &args.options, &target, &namespace)?, words)
}

/// `virtctl scp`
pub(crate) async fn scp(cluster: &Cluster, args: &Scp) -> anyhow::Result<i32> {
    let copy = Copy::parse(&args.source, &args.destination)?;
    let (user, target) = target::with_user(copy.guest)?;
    let namespace = namespace(cluster, &target).await?;
    let remote = format!("{}:{}", host(&args.options, user, &target, &namespace), copy.remote);
    let mut words = Vec::new();
    words.extend(args.recursive.then(|| "-r".to_owned()));
    words.extend(args.preserve.then(|| "-p".to_owned()));
    words.extend(if copy.upward { [copy.local.to_owned(), remote] } else { [remote, copy.local.to_owned()] });
    run("scp", client_options(cluster, &args.options, &target, &namespace)?, words)
}

async fn namespace(cluster: &Cluster, target: &Target) -> anyhow::Result<String> {
    match (&target.namespace, cluster.given_namespace()) {
        (Some(namespace), _) => Ok(namespace.clone()),
        (None, Some(namespace)) => Ok(namespace.to_owned()),
        (None, None) => Ok(cluster.session().await?.namespace),
    }
}

/// `user@vm.NAME.NAMESPACE`: under this name OpenSSH remembers the guest's key.
fn host(options: &Options, user: Option<String>, target: &Target, namespace: &str) -> String {
    let own = ["USER", "USERNAME", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
    let user = user.or_else(|| options.username.clone()).or(own).filter(|user| !user.is_empty());
    let user = user.map(|user| format!("{user}@")).unwrap_or_default();
    format!("{user}{}.{}.{namespace}", target.kind.short(), target.name)
}

fn client_options(
    cluster: &Cluster,
    options: &Options,
    target: &Target,
    namespace: &str,
) -> anyhow::Result<Vec<String>> {
    let program = std::env::current_exe().context("cannot find this program's own path")?;
    let mut words = vec![program.display().to_string()];
    words.extend(cluster.same_flags());
    let guest = format!("{}/{}/{namespace}", target.kind.short(), target.name);
    words.extend(["port-forward".to_owned(), "--stdio=true".to_owned(), guest, options.port.to_string()]);
    let mut given = vec!["-o".to_owned(), format!("ProxyCommand={}", proxy_command(&words))];
    given.extend(options.local_ssh_opts.clone());
    if let Some(file) = &options.known_hosts {
        given.extend(["-o".to_owned(), format!("UserKnownHostsFile={}", file.display())]);
    }
    if let Some(file) = &options.identity_file {
        given.extend(["-i".to_owned(), file.display().to_string()]);
    }
    Ok(given)
}

/// OpenSSH hands the command to a shell, after it has replaced percent signs.
fn proxy_command(words: &[String]) -> String {
    let plain = |word: &str| word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./=:,@".contains(&byte));
    let quoted = |word: &String| {
        if plain(word) { word.clone() } else { format!("'{}'", word.replace('\'', r"'\''")) }
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ").replace('%', "%%")
}

fn run(program: &str, options: Vec<String>, words: Vec<String>) -> anyhow::Result<i32> {
    let status = match Command::new(program).args(options).args(words).status() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!(
                "there is no {program} in $PATH: install the OpenSSH client (package openssh-client or openssh-clients)"
            )
        }
        status => status.with_context(|| format!("cannot run {program}"))?,
    };
    Ok(status.code().unwrap_or(1))
}

/// What is copied, and in which direction.
#[derive(Debug, PartialEq, Eq)]
struct Copy<'a> {
    guest: &'a str,
    remote: &'a str,
    local: &'a str,
    upward: bool,
}

impl<'a> Copy<'a> {
    fn parse(source: &'a str, destination: &'a str) -> anyhow::Result<Self> {
        match (source.split_once(':'), destination.split_once(':')) {
            (Some(_), Some(_)) => bail!(
                "copying from a remote location to another remote location is not supported: {source:?} to {destination:?}"
            ),
            (None, None) => bail!(
                "none of the two provided locations seems to be a remote location: {source:?} to {destination:?}; write vm/NAME:PATH"
            ),
            (Some((guest, remote)), None) => Ok(Self { guest, remote, local: destination, upward: false }),
            (None, Some((guest, remote))) => Ok(Self { guest, remote, local: source, upward: true }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_one_remote_side() {
        let up = Copy::parse("file", "jane@vm/web:dir/").unwrap();
        assert_eq!(up, Copy { guest: "jane@vm/web", remote: "dir/", local: "file", upward: true });
        assert!(!Copy::parse("vm/web:file", ".").unwrap().upward);
        assert!(Copy::parse("a", "b").is_err() && Copy::parse("a:x", "b:y").is_err());
    }

    #[test]
    fn the_way_to_the_guest_survives_a_shell_and_openssh() {
        let words = ["/opt/my tools/virtctl", "--context=it's 100%", "port-forward"].map(str::to_owned);
        assert_eq!(proxy_command(&words), r"'/opt/my tools/virtctl' '--context=it'\''s 100%%' port-forward");
    }
}
