//! The command line: what commands there are, and their help.

use clap::{ArgAction, CommandFactory, Parser, Subcommand};

use crate::cluster::Cluster;
use crate::commands::{completion, console, guest, migrate, pause, port_forward, power, ssh, version};
use crate::why;

/// Controls the virtual machines of a cluster.
#[derive(Parser)]
#[command(
    name = "virtctl",
    version,
    propagate_version = true,
    disable_help_subcommand = true,
    max_term_width = 100,
    after_long_help = "Every command explains itself with examples: virtctl COMMAND --help.\n\
        Named kubectl-virt and put into $PATH, this program is the kubectl plugin \"kubectl virt\"."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    #[command(subcommand)]
    command: Command,
}

macro_rules! examples {
    ($($line:literal)+) => { concat!("Examples:", $("\n  ", $line,)+) };
}

#[derive(Subcommand)]
enum Command {
    /// Start a virtual machine.
    ///
    /// What follows depends on its run strategy: a halted machine becomes one that always runs, a manual one starts once.
    #[command(after_long_help = examples!(
        "virtctl start web                 # start it and return"
        "virtctl start web --wait          # return when it runs"
        "virtctl start web --paused        # with its processors stopped, until \"virtctl unpause vm web\""
    ))]
    Start(power::Start),
    /// Stop a virtual machine.
    ///
    /// The guest is asked to shut down, as if its power button was pressed. When its grace period is over, it is switched off.
    #[command(after_long_help = examples!(
        "virtctl stop web                              # ask the guest to shut down"
        "virtctl stop web --wait --timeout 2m          # return when it is off"
        "virtctl stop web --force --grace-period=0     # cut the power"
    ))]
    Stop(power::Stop),
    /// Stop a virtual machine and start it again.
    ///
    /// The guest gets a new pod, perhaps on another node, and everything that was changed in the machine since its start. To
    /// reboot the guest where it is, use `soft-reboot` or `reset`.
    #[command(after_long_help = examples!(
        "virtctl restart web --wait"
        "virtctl restart web --force --grace-period=0  # do not wait for the guest's shutdown"
    ))]
    Restart(power::Stop),
    /// Stop the processors of a guest; its memory stays.
    #[command(after_long_help = examples!("virtctl pause vm web" "virtctl pause vmi web" "virtctl pause vm/web"))]
    Pause(pause::Args),
    /// Let the processors of a paused guest go on.
    #[command(after_long_help = examples!("virtctl unpause vm web" "virtctl unpause vmi web"))]
    Unpause(pause::Args),
    /// Press the reset button of a guest.
    ///
    /// The guest does not notice beforehand: what it had not written is lost.
    #[command(after_long_help = examples!("virtctl reset web"))]
    Reset(guest::Guest),
    /// Ask a guest to reboot, through its agent or its power button.
    #[command(name = "soft-reboot", after_long_help = examples!("virtctl soft-reboot web"))]
    SoftReboot(guest::Guest),
    /// Move a running guest to another node.
    #[command(after_long_help = examples!(
        "virtctl migrate web"
        "virtctl migrate web --watch                             # show how it goes, return when it has moved"
        "virtctl migrate web --addedNodeSelector=zone=b          # only to a node with that label"
    ))]
    Migrate(migrate::Migrate),
    /// Stop moving a guest; it goes on where it is.
    #[command(after_long_help = examples!("virtctl migrate-cancel web"))]
    MigrateCancel(migrate::Cancel),
    /// Forget that a guest should leave its node.
    #[command(after_long_help = examples!("virtctl evacuate-cancel vm web" "virtctl evacuate-cancel vmi web"))]
    EvacuateCancel(migrate::Evacuation),
    /// Tell what keeps a machine from running, and what to do about it.
    ///
    /// Follows the path VM → VMI → pod → node → domain → guest and stops at the first thing that blocks. Exits with 0 when the
    /// machine is healthy, with 1 when something blocks. Nothing is changed.
    #[command(after_long_help = examples!(
        "virtctl why web"
        "virtctl why vm/web/shop"
        "virtctl why web -o json | jq -r .blocker.reason"
        "virtctl why web > /dev/null && echo fine"
    ))]
    Why(why::Args),
    /// Connect to the serial console of a guest.
    ///
    /// Type Ctrl-] to leave it. Only one can type: whoever connects last, and the one before is told. Any number may watch, and what the
    /// guest wrote since its boot is kept: the first 256 KiB and the last MiB at least.
    #[command(after_long_help = examples!(
        "virtctl console web"
        "virtctl console web --timeout=1      # wait one minute at most for the guest to run"
        "virtctl console web --log            # what the guest wrote since its boot"
        "virtctl console web --log --follow   # the same, and what it writes from now on"
        "virtctl console web --watch          # only look, while another types"
    ))]
    Console(console::Args),
    /// Open ports of a guest on this machine.
    ///
    /// The traffic goes through the cluster's API server: fine for a look or an administrator's session, too slow for a service. For
    /// that, see `expose`.
    #[command(after_long_help = examples!(
        "virtctl port-forward vm/web 8080                  # port 8080 here is port 8080 there"
        "virtctl port-forward vm/web/shop 8080:80 8443:443 # machine web of namespace shop"
        "virtctl port-forward vmi/dns udp/5353:53"
        "virtctl port-forward --address 0.0.0.0 vm/web 80  # reachable from outside"
        "virtctl port-forward --stdio vm/web 22            # for the ProxyCommand of ssh"
    ))]
    PortForward(port_forward::Args),
    /// Log in to a guest with the ssh of this machine.
    ///
    /// The connection goes through the cluster's API server, so the guest needs no address that can be reached from here.
    #[command(after_long_help = examples!(
        "virtctl ssh jane@vm/web"
        "virtctl ssh -l jane -i ~/.ssh/id_web vm/web/shop"
        "virtctl ssh jane@vm/web --command 'uptime'"
        "virtctl ssh jane@vm/web -t '-o StrictHostKeyChecking=no'"
    ))]
    Ssh(ssh::Ssh),
    /// Copy files to or from a guest with the scp of this machine.
    #[command(after_long_help = examples!(
        "virtctl scp page.html jane@vm/web:/srv/"
        "virtctl scp --recursive jane@vm/web/shop:/var/log ./log"
    ))]
    Scp(ssh::Scp),
    /// Show what a guest's agent tells about its system.
    #[command(name = "guestosinfo", after_long_help = examples!("virtctl guestosinfo web" "virtctl guestosinfo web -o yaml"))]
    GuestOsInfo(guest::Question),
    /// Show who is logged in to a guest.
    #[command(name = "userlist", after_long_help = examples!("virtctl userlist web"))]
    UserList(guest::Question),
    /// Show the file systems that a guest has mounted.
    #[command(name = "fslist", after_long_help = examples!("virtctl fslist web"))]
    FsList(guest::Question),
    /// Show the versions of this program and of the cluster.
    #[command(after_long_help = examples!("virtctl version" "virtctl version --client" "virtctl version -o json"))]
    Version(version::Args),
    /// Print the completion script of a shell.
    #[command(after_long_help = examples!(
        "source <(virtctl completion bash)"
        "virtctl completion zsh > \"${fpath[1]}/_virtctl\""
        "virtctl completion fish > ~/.config/fish/completions/virtctl.fish"
    ))]
    Completion(completion::Args),
}

impl Cli {
    /// Does what was asked; the exit code.
    pub(crate) async fn run(self) -> anyhow::Result<i32> {
        let cluster = &self.cluster;
        match &self.command {
            Command::Start(args) => power::start(cluster, args).await?,
            Command::Stop(args) => power::stop(cluster, args).await?,
            Command::Restart(args) => power::restart(cluster, args).await?,
            Command::Pause(args) => pause::pause(cluster, args).await?,
            Command::Unpause(args) => pause::unpause(cluster, args).await?,
            Command::Reset(args) => guest::reset(cluster, args).await?,
            Command::SoftReboot(args) => guest::soft_reboot(cluster, args).await?,
            Command::Migrate(args) => migrate::migrate(cluster, args).await?,
            Command::MigrateCancel(args) => migrate::cancel(cluster, args).await?,
            Command::EvacuateCancel(args) => migrate::cancel_evacuation(cluster, args).await?,
            Command::Why(args) => return why::run(cluster, args).await,
            Command::Console(args) => console::run(cluster, args).await?,
            Command::PortForward(args) => port_forward::run(cluster, args).await?,
            Command::Ssh(args) => return ssh::ssh(cluster, args).await,
            Command::Scp(args) => return ssh::scp(cluster, args).await,
            Command::GuestOsInfo(args) => guest::os_info(cluster, args).await?,
            Command::UserList(args) => guest::users(cluster, args).await?,
            Command::FsList(args) => guest::filesystems(cluster, args).await?,
            Command::Version(args) => version::run(cluster, args).await?,
            Command::Completion(args) => completion::run(args)?,
        }
        Ok(0)
    }
}

/// The command line under the name that the user typed: `virtctl` or `kubectl virt`.
pub(crate) fn command(program: &'static str) -> clap::Command {
    adapt(Cli::command().bin_name(program).display_name(program), program)
}

/// Switches take a value as Go's do (`--force`, `--force=true`, `--force=false`), and examples name the program that runs.
fn adapt(command: clap::Command, program: &'static str) -> clap::Command {
    let examples =
        command.get_after_long_help().map(|text| text.to_string().replace("virtctl ", &format!("{program} ")));
    let command = match examples {
        Some(examples) => command.after_long_help(examples),
        None => command,
    };
    let switch = |arg: clap::Arg| match arg.get_action() {
        ArgAction::SetTrue => arg
            .action(ArgAction::Set)
            .num_args(0..=1)
            .require_equals(true)
            .default_value("false")
            .default_missing_value("true")
            .value_name("BOOL")
            .hide_default_value(true)
            .hide_possible_values(true),
        _ => arg,
    };
    command.mut_args(switch).mut_subcommands(|subcommand| adapt(subcommand, program))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        let matches = command("virtctl").try_get_matches_from(line.split(' '))?;
        Cli::from_arg_matches(&matches)
    }

    #[test]
    fn the_command_line_is_sound() {
        command("virtctl").debug_assert();
    }

    #[test]
    fn switches_take_values_as_in_go() {
        for (flag, expected) in [("", false), (" --paused", true), (" --paused=true", true), (" --paused=false", false)]
        {
            let Command::Start(_) = parse(&format!("virtctl start{flag} web")).unwrap().command else { panic!() };
            let matches = command("virtctl").get_matches_from(format!("virtctl start{flag} web").split(' '));
            assert_eq!(matches.subcommand().unwrap().1.get_flag("paused"), expected, "{flag}");
        }
    }

    #[test]
    fn connection_flags_stand_anywhere() {
        for line in ["virtctl -n shop start web", "virtctl start web -n shop", "virtctl start --namespace=shop web"] {
            assert_eq!(parse(line).unwrap().cluster.given_namespace(), Some("shop"), "{line}");
        }
    }

    #[test]
    fn the_plugin_s_help_names_the_plugin() {
        let help = command("kubectl virt").find_subcommand_mut("start").unwrap().render_long_help().to_string();
        assert!(help.contains("kubectl virt start web --wait"), "{help}");
        assert!(!help.contains("virtctl"), "{help}");
    }
}
