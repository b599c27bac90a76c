//! `virtctl`: what kubectl has no command for, and what a machine without kubectl needs. Parses arguments and calls the command's
//! function.

mod cli;
mod cluster;
mod commands;
mod output;
mod progress;
mod session;
mod stream;
mod target;
mod time;
mod until;
mod why;

use std::path::Path;

use clap::FromArgMatches;

use crate::session::Refused;

fn main() {
    let matches = cli::command(program()).get_matches();
    let cli = cli::Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(cli.run()));
    let code = done.unwrap_or_else(|error| {
        eprintln!("{}", render(&error));
        let step = error.chain().find_map(|cause| cause.downcast_ref::<Refused>()).and_then(Refused::next_step);
        if let Some(step) = step {
            eprintln!("hint: {step}");
        }
        1
    });
    // Not by returning: the thread that reads standard input cannot be interrupted.
    std::process::exit(code)
}

/// The name that the user typed.
fn program() -> &'static str {
    let name = std::env::args_os().next();
    let name = name.as_ref().and_then(|path| Path::new(path).file_name()?.to_str()).unwrap_or_default();
    if name.starts_with("kubectl-virt") || name.starts_with("kubectl_virt") { "kubectl virt" } else { "virtctl" }
}

/// An error and its causes in one line. Servers and guests have a part in its words.
fn render(error: &anyhow::Error) -> String {
    let text = error.chain().fold(String::new(), |text, cause| match text.chars().last() {
        None => cause.to_string(),
        // Some messages of KubeVirt's have no colon, and scripts know them.
        Some(' ') => format!("{text}{cause}"),
        Some(_) => format!("{text}: {cause}"),
    });
    output::plain(&text).into_owned()
}
