//! The command line: what commands there are, and their help.

use clap::{ArgAction, CommandFactory, Parser, Subcommand};

use crate::cluster::Cluster;
use crate::commands::objects::{apply, delete, get, wait};
use crate::commands::{
    completion, console, create, expand, expose, guest, installation, migrate, pause, port_forward, power, ssh,
    validate, version, vnc, volumes, vouch,
};
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
    /// Vouch that nothing of a guest's vanished pods runs any more.
    ///
    /// A pod can be deleted by force, or with its node, while the guest in it goes on. The machine is not started again before the
    /// pod's node says that nothing of it runs, or the node is fenced. Where neither can come to be, a person can say so instead. If
    /// they are wrong, two copies of the guest write to the same disks, which destroys what is on them.
    #[command(after_long_help = examples!(
        "virtctl why web                   # which pod is missing, and on which node?"
        "virtctl vouch vm web              # shows what is vouched for, and asks for the name"
        "virtctl vouch vm web --yes        # for scripts that have switched the node off"
    ))]
    Vouch(vouch::Args),
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
    /// Show the display of a guest in a VNC viewer, or take a picture of it.
    #[command(after_long_help = examples!(
        "virtctl vnc web"
        "virtctl vnc web --proxy-only --port 5900         # for a viewer of your own"
        "virtctl vnc screenshot web -f web.png"
    ))]
    Vnc(vnc::Args),
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
    /// Show objects of any kind, as a table or whole.
    #[command(after_long_help = examples!(
        "virtctl get vm                                   # the machines of the namespace"
        "virtctl get vm,vmi,pods -A                       # of all namespaces"
        "virtctl get vm web -o yaml"
        "virtctl get vmi -l app=web -o wide"
        "virtctl get vm -w                                # go on with what changes"
        "virtctl get vmi web -o jsonpath='{.status.interfaces[0].ipAddress}'"
    ))]
    Get(get::Args),
    /// Create objects from files, or bring them to what the files say.
    ///
    /// Server-side apply: the server merges, and tells when others own what differs.
    #[command(after_long_help = examples!(
        "virtctl apply -f web.yaml"
        "virtctl apply -f machines/                       # every .yaml, .yml and .json in it"
        "virtctl create vm --name web | virtctl apply -f -"
        "virtctl apply -f web.yaml --dry-run              # would the server take it?"
    ))]
    Apply(apply::Args),
    /// Delete objects and wait until they are gone.
    #[command(after_long_help = examples!(
        "virtctl delete vm web"
        "virtctl delete vm/web vmi/test --wait=false"
        "virtctl delete -f web.yaml --ignore-not-found"
        "virtctl delete vm -l app=web --timeout 2m"
    ))]
    Delete(delete::Args),
    /// Wait until objects are as wanted.
    #[command(after_long_help = examples!(
        "virtctl wait vm/web --for=condition=Ready --timeout=5m"
        "virtctl wait vmi web --for=jsonpath='{.status.phase}'=Running"
        "virtctl wait vmi web --for=delete"
    ))]
    Wait(wait::Args),
    /// Print manifests of new objects.
    Create(create::Args),
    /// Check files as a cluster would, without one.
    ///
    /// The same defaults and rules as admission, with the configuration of a new cluster; every finding with its field. Exits with 1
    /// when an object would be refused, or has a field that does not exist.
    #[command(after_long_help = examples!(
        "virtctl validate -f web.yaml"
        "virtctl validate -f machines/ -o json"
        "virtctl create vm --name web | virtctl validate -f -"
    ))]
    Validate(validate::Args),
    /// Print a machine with all that its instancetype and preference say written out.
    #[command(after_long_help = examples!("virtctl expand --vm web" "virtctl expand -f web.yaml -o json"))]
    Expand(expand::Args),
    /// Make a service that leads to ports of a machine.
    #[command(after_long_help = examples!(
        "virtctl expose vm web --name web-ssh --port 22 --type NodePort"
        "virtctl expose vmi web --name web --port 80 --target-port 8080"
    ))]
    Expose(expose::Args),
    /// Plug a disk into a running machine.
    #[command(name = "addvolume", after_long_help = examples!("virtctl addvolume web --volume-name data" "virtctl addvolume web --volume-name data --serial 1234 --cache none"))]
    AddVolume(volumes::Add),
    /// Unplug a disk from a running machine.
    #[command(name = "removevolume", after_long_help = examples!("virtctl removevolume web --volume-name data"))]
    RemoveVolume(volumes::Remove),
    /// Show which devices of the nodes guests may have.
    PermittedDevices,
    /// Administer the installation.
    Adm(installation::Args),
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
            Command::Vouch(args) => vouch::run(cluster, args).await?,
            Command::Console(args) => console::run(cluster, args).await?,
            Command::Vnc(args) => vnc::run(cluster, args).await?,
            Command::PortForward(args) => port_forward::run(cluster, args).await?,
            Command::Ssh(args) => return ssh::ssh(cluster, args).await,
            Command::Scp(args) => return ssh::scp(cluster, args).await,
            Command::Get(args) => get::run(cluster, args).await?,
            Command::Apply(args) => apply::run(cluster, args).await?,
            Command::Delete(args) => delete::run(cluster, args).await?,
            Command::Wait(args) => wait::run(cluster, args).await?,
            Command::Create(args) => create::run(cluster, args)?,
            Command::Validate(args) => return validate::run(args),
            Command::Expand(args) => expand::run(cluster, args).await?,
            Command::Expose(args) => expose::run(cluster, args).await?,
            Command::AddVolume(args) => volumes::add(cluster, args).await?,
            Command::RemoveVolume(args) => volumes::remove(cluster, args).await?,
            Command::PermittedDevices => installation::devices(cluster).await?,
            Command::Adm(args) => installation::adm(cluster, args).await?,
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
pub(crate) mod tests_support {
    use super::*;
    use clap::FromArgMatches;

    /// The arguments of `create vm` with these flags, and the namespace among them.
    pub(crate) fn create_vm(flags: &str) -> (create::Vm, Option<String>) {
        let line = format!("virtctl create vm {flags}");
        let matches = command("virtctl").get_matches_from(line.split(' '));
        let cli = Cli::from_arg_matches(&matches).unwrap();
        let namespace = cli.cluster.given_namespace().map(str::to_owned);
        let Command::Create(args) = cli.command else { panic!("another command: {line}") };
        (args.into_vm(), namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches;

    /// Everything that users can ask for, in one file: a change of the interface is a change of it.
    #[test]
    fn help_of_every_command() {
        fn add(command: &mut clap::Command, path: &str, golden: &mut String) {
            // The connection flags are the same everywhere.
            let help = command.render_long_help().to_string();
            let (own, rest) = help.split_once("\nConnection:\n").unwrap_or((&help, ""));
            let examples = rest.find("\nExamples:").map_or("", |at| &rest[at..]);
            golden.push_str(&format!("===== {path}\n{own}{examples}\n"));
            let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
            for name in names {
                if let Some(sub) = command.find_subcommand_mut(&name) {
                    add(sub, &format!("{path} {name}"), golden);
                }
            }
        }
        let mut whole = command("virtctl").term_width(100);
        whole.build();
        let mut golden = String::new();
        add(&mut whole, "virtctl", &mut golden);
        insta::assert_snapshot!("help", golden);
    }

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
